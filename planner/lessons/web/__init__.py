"""Pages and addresses of the lessons."""
