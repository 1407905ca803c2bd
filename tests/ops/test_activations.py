"""The names that settings accept are the activations that there are."""

from __future__ import annotations

from tlm.ir.activations import ACTIVATIONS
from tlm.ops.settings import ACTIVATION_NAMES


def test_names():
    assert tuple(ACTIVATIONS) == ACTIVATION_NAMES
