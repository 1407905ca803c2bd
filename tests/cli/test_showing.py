"""What `tlm show` says where it has nothing to show."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tlm.cli import showing
from tlm.errors import ArgumentError
from tlm.target import Target


def test_machine_code_of_a_gpu_is_refused_with_what_there_is_instead():
    kernel: Any = SimpleNamespace(target=Target("sm_90"))
    with pytest.raises(
        ArgumentError, match=r"--asm .* of CPUs, the target is sm_90: --source shows its CUDA C"
    ):
        showing._assembly(kernel)
