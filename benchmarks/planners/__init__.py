"""Other public planners at pinned commits, run on measured runs beside dpplan."""
