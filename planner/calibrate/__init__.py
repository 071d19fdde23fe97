"""Measure a node, fit the numbers that estimates rest on, and prove them by training small models.

`dpplan calibrate` starts workers (launch) that time what cases lists (kernels, collectives) in
quiet moments (quiet) and keep raw records (record); fit turns them into the curves of the shipped
profiles, profile into a file for `--calibration`; verify trains decoders (decoder, training) and
compares them with `planner.verbs.estimate`. torch is imported by the modules that time, only.
"""
