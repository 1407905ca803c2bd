"""Names of programs as identifiers of the text: no name reaches it as it was written."""

from __future__ import annotations

import re

from .device import RESERVED


class Names:
    """Identifiers that were given out; each is new."""

    def __init__(self) -> None:
        self.taken: set[str] = set(RESERVED)

    def name(self, wanted: str) -> str:
        """A new identifier that looks like `wanted`."""
        base = re.sub(r"\W", "_", short(wanted), flags=re.ASCII)
        base = re.sub(r"__+", "_", base).strip("_") or "x"
        base = f"v{base}" if base[0].isdigit() or base.startswith("tlm_") else base
        found, count = base, 2
        while found in self.taken:
            found, count = f"{base}_{count}", count + 1
        self.taken.add(found)
        return found


def short(name: str) -> str:
    """A loop's name; of one that was fused, the first words of the loops in it and where it was split since.

    `k.1@B_s*j.1.0@B_s.0.1` becomes `k*j.0.1`.
    """
    parts = name.split("*")
    if len(parts) == 1:
        return name
    tail = parts[-1].rsplit("@", 1)[-1] if "@" in parts[-1] else parts[-1]
    splits = re.search(r"(\.\d+)*$", tail)
    words = dict.fromkeys([re.split(r"[.@]", p)[0] for p in parts])
    return "*".join(words) + (splits.group(0) if splits else "")
