"""From what people type to a plan: the only reader of files."""
