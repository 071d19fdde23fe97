"""Commands of the lessons."""
