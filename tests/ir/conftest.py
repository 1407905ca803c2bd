"""Lets the tests of this folder share `tests/ir/strategies.py`, whatever directory pytest starts in."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
