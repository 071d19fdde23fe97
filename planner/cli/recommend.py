from typing import Any
from planner.cli.options import with_request_options
@with_request_options
def command(given: dict[str, Any]) -> None:
    """x"""
