"""Files of other programs as requests: one module per format, each a two-way table (`record`).

A recipe is one file or several: a DeepSpeed JSON beside training arguments, a batch script around a
command. Each format reads what is its own of every file, the parts are joined, and two that
contradict each other are an error that names both places.
"""
