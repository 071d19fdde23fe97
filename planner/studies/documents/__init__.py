"""Documents of the studies."""

ANSWERS = {"validate": "validate.Validation", "check": "check.Check"}
