"""Charts of the dashboard: what a state looks like, each with the table behind it."""
