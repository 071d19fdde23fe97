"""dpplan: plan the training of large models before renting a GPU."""

import os

__version__ = "0.2.0"

# OpenBLAS reads this when numpy is loaded. The matrices here are small: the inverse of one of a few
# hundred runs takes one thread 2 ms, and two, which wait for each other, 160 ms of busy cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
