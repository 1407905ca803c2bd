"""The command line of the worked examples in kernels/: extents, or none for the usual ones."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ..errors import TlmError


def main(check: Callable[..., None], **usual: int) -> None:
    """check(*extents) of the command line, of `usual` (name -> extent) where it has none.

    Exits with one line and code 2 where these are not as many integers of at least 1, or too large.
    """
    given = sys.argv[1:]
    if given and (len(given) != len(usual) or not all(w.isdecimal() and int(w) for w in given)):
        names = " ".join(usual)
        _stop(f"takes {names}, each an integer of at least 1, or nothing; got {' '.join(given)}")
    try:
        check(*([int(w) for w in given] or usual.values()))
    except (TlmError, MemoryError) as error:
        _stop(str(error))


def _stop(why: str) -> None:
    print(f"{sys.argv[0]}: {why}", file=sys.stderr)
    raise SystemExit(2)
