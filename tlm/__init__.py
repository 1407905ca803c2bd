"""tlm: a tensor compiler whose schedules are written by a language model."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import ops as ops
    from .ops.caching import cache as cache
    from .ops.settings import Generate as Generate
    from .ops.settings import Random as Random
    from .ops.settings import Search as Search
    from .schedule.schedule import Schedule as Schedule
    from .target import Target as Target
    from .target import host as host

__version__ = "0.1.0"
__all__ = ["Generate", "Random", "Schedule", "Search", "Target", "__version__", "cache", "host", "ops"]

# Public name -> the module that has it; loaded at first use, so that `import tlm` costs nothing.
_HOMES = {
    "cache": ".ops.caching",
    "Generate": ".ops.settings",
    "Random": ".ops.settings",
    "Search": ".ops.settings",
    "Schedule": ".schedule.schedule",
    "Target": ".target",
    "host": ".target",
}


def __getattr__(name: str) -> Any:
    if name == "ops":
        return import_module(".ops", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module 'tlm' has no attribute {name!r}; it has {', '.join(__all__)}")
    found = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
