"""Lessons whose figures are computed."""
