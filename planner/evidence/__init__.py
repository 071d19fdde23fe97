"""Uncertainty of answers from measured runs: residuals of validated runs, by likeness."""
