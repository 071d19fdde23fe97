"""dpplan: plan the training of large models before renting a GPU."""

__version__ = "0.1.0"
