"""Pipeline schedules, one file each. A file's name is its schedule's, with `_` for `-` and another
`_` before a digit in front: `_1f1b.py`, `zb_h1.py`."""
