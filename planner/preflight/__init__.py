"""Whether this node can run a plan: GPUs, memory, links and disks as they are now."""
