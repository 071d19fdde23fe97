"""A plug-in of dpplan: a launch format and a mechanism."""
