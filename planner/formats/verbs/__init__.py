"""Verbs of the formats: files in, document out."""
