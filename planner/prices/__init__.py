"""Prices of the day: fetched from public catalogues, shown, and kept by date."""
