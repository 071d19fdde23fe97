"""The commands of the core, one module each: loaded when they are asked for."""
