"""Commands of the formats."""
