"""One module per verb: options in, document out."""
