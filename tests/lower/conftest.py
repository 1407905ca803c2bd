"""Lets the tests of this folder share `tests/lower/programs.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
