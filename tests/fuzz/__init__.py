"""Fuzzers: requests, documents, HTTP, writers, kills and markup made at random, and what must hold
of every answer.

One module per kind. Pytest runs a few of each, the same everywhere; `python -m tests.fuzz` runs
them for as long as its arguments say, and prints figures."""
