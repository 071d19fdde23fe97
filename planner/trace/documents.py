"""The answer of `dpplan trace`."""

ANSWERS = {"trace": "ModelTree"}
