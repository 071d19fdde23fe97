"""Measure a node, fit the numbers that estimates rest on, and prove them by training small
decoders.

`dpplan calibrate` starts ranks as torchrun does (launch). They meet (ranks), time what cases lists
(kernels, collectives, storage) in quiet moments (quiet) and keep raw records (record). Curves are
fitted to them (fit, fit_device, fit_links), what the stack adds is found by predicting small
decoders (overhead), and profile writes the file for `--calibration`. verify trains decoders
(decoder, training) and compares them with `planner.verbs.estimate`. Only modules that time import
torch.
"""
