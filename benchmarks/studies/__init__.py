"""Studies of accuracy over measured runs: ablations, effects of options, cross-validation, whether
bands and chances to fit hold. Each prints its tables:

    python -m benchmarks.studies.ablation [--suite SUITE] [RUNS.csv ...]
"""
