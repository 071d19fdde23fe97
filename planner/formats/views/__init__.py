"""Documents of the formats as text."""
