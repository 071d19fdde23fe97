"""One estimate as documents: layout, search, requirements."""
