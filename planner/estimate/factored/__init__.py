"""Columns that remember from which few columns they were made."""
