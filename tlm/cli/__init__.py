"""The command line: `tlm run matmul 512 512 512`, `tlm --help`."""

from __future__ import annotations

import logging
import os
import sys
import warnings


def main() -> None:
    """Entry point of the `tlm` command. Exit codes: 0 done, 1 a wrong or failed result, 2 a wrong call."""
    # These make numpy's BLAS slow or foreign to the machine it runs on, and with it every comparison.
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        os.environ.pop(name, None)
    from ..errors import TlmError

    warnings.formatwarning = lambda message, *_, **__: f"tlm: {message}\n"
    # Importing it adds the long-running commands.
    from . import learning as learning
    from .app import app
    from .progress import Log

    logger = logging.getLogger("tlm")
    logger.setLevel(logging.INFO)
    logger.addHandler(Log())
    try:
        app()
    except (TlmError, OSError) as error:
        # The system's errors are of files that a command names and cannot read or write.
        print(f"tlm: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except MemoryError as error:
        print(f"tlm: there is not enough memory: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("tlm: stopped", file=sys.stderr)
        raise SystemExit(130) from None
