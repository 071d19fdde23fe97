"""Measured runs beside predictions: tables of runs, logs and recordings, validation, and the
studies of what it rests on (ablations, fits, cross-validation)."""
