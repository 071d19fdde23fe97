"""Recordings of torch: traces of its profiler and snapshots of its allocator's memory."""
