"""Writers of the generated pages and blocks; docs/build.py is the command."""
