"""Addresses of the formats."""
