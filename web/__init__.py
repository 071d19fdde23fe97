"""The planner over HTTP: the same functions and dicts as the command line."""
