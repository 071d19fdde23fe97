"""Runs tables as a launch format: a row says the options of a run that was measured."""
