"""Commands of tracing."""
