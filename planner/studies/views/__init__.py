"""Documents of the studies as text and pages."""
