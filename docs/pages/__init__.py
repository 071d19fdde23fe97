"""Writers of the generated pages and blocks; docs/build.py is the command."""

import planner  # noqa: F401  (before numpy, whose threads it counts)
