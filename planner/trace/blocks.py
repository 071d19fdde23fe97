"""The repeated blocks of a module: children of its lists, outermost first."""

from __future__ import annotations

from collections import Counter

from torch import nn

_FEWEST = 2


def blocks_of(model: nn.Module) -> set[str]:
    """Paths of the children of every list of modules that is inside no other block: of those with
    children of their own of which two are alike."""
    out: set[str] = set()

    def look(module: nn.Module, path: str) -> None:
        children = [(f"{path}.{name}" if path else name, x) for name, x in module.named_children()]
        if isinstance(module, nn.ModuleList | nn.Sequential) and _repeats(module):
            for name, child in children:
                if _has_children(child):
                    out.add(name)
                else:
                    look(child, name)
            return
        for name, child in children:
            look(child, name)

    look(model, "")
    return out


def _repeats(module: nn.ModuleList | nn.Sequential) -> bool:
    counts = Counter(type(child) for child in module if _has_children(child))
    counts.pop(nn.Sequential, None)
    counts.pop(nn.ModuleList, None)
    return any(count >= _FEWEST for count in counts.values())


def _has_children(module: nn.Module) -> bool:
    return any(True for _ in module.children())
