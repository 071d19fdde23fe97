"""The commands of the core, one module each: loaded on use."""
