"""Lets the tests of this folder share `tests/cuda/shim.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
