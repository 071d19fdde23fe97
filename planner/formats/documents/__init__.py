"""Documents of the formats."""

ANSWERS = {"export": "export.Export", "read": "read.Read"}
