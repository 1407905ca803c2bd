"""From a call on arrays of a GPU to a kernel that runs there."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..backend.cuda import runtime
from ..errors import ArgumentError
from ..ir.dtypes import from_numpy
from ..target import Target
from .arrays import Spec, numpy_dtype, read
from .gpu_arrays import Library, is_number, library, one_device, remember, taken
from .gpu_native import Native, spec_of
from .gpu_places import FORMS, layout
from .gpu_runner import GpuRunner, nothing, on_device
from .products import Problem
from .settings import machine

if TYPE_CHECKING:
    from .gpu_kernel import GpuKernel

Kernels = Callable[[Problem, Target], Any]


@dataclass(frozen=True, slots=True)
class Call:
    """An operator on operands of which at least one lies on a GPU. `describe(specs)`: what to compute;
    `prepare(operands)` replaces operands that no kernel takes, such as empty sums."""

    name: str
    operands: tuple[Any, ...]
    describe: Callable[[tuple[Spec, ...]], Problem]
    prepare: Callable[[tuple[Any, ...]], tuple[Any, ...]] | None


def call_key(operands: tuple[Any, ...], *rest: Any) -> Hashable:
    """What a call is remembered under; None where that cannot be told at a glance, or has no hash."""
    try:
        if any(x.__class__ is not np.ndarray and x.__class__ not in FORMS for x in operands):
            remember(operands)
        key = (*map(layout, operands), *rest)
        hash(key)
    except (TypeError, AttributeError):
        return None
    return key


def run(
    call: Call, target: Any, threads: int | None, kernels: Kernels, out: Any
) -> tuple[Any, GpuRunner | None]:
    """The result of a call, and what runs later calls of the same form; None where nothing was compiled."""
    given = tuple([np.asarray(x) if is_number(x) else x for x in call.operands])
    device = one_device(call.name, given)
    here = target is None or target == "cuda"
    goal = device_target(call.name, given, threads) if here else machine(target, threads)
    if goal.kind != "cuda":
        raise ArgumentError(
            f"{call.name}: the operands lie on GPU {device}, and target={target!r} is a CPU; leave target= "
            "away, or copy them (cupy.asnumpy(x))"
        )
    libraries = [None if is_number(x) else library(x) for x in given]
    first = next(n for n, found in enumerate(libraries) if found is not None)
    home = libraries[first]
    assert home is not None
    with on_device(device):
        seen = [seen_on_gpu(x, f"operand {n}") for n, x in enumerate(given)]
        prepared = _prepared(call, [s for s, _ in seen])
        if prepared is not None:
            given, libraries, seen = _replaced(prepared, given, libraries, seen, home.native, device)
        problem = call.describe(tuple([s for s, _ in seen]))
        if 0 in problem.shape:
            empty = nothing(call.name, home, call.operands[first], problem.shape, problem.dtype, device, out)
            return empty, None
        kernel: GpuKernel = kernels(problem, goal)
        runner = GpuRunner(kernel, device, libraries, [copy for _, copy in seen])
    return runner(given, out), runner if prepared is None else None


def device_target(name: str, operands: tuple[Any, ...], threads: int | None) -> Target:
    """The GPU of the operands of the operator `name`."""
    if threads is not None:
        raise ArgumentError(f"threads= is of CPUs; a GPU has its own, got {threads}")
    return runtime.present(one_device(name, operands))


def seen_on_gpu(x: Any, label: str = "an operand") -> tuple[Spec, bool]:
    """The spec under which a kernel sees an array or a number, and whether it must be copied first."""
    if is_number(x):
        return read(x)
    found = library(x)
    assert found is not None
    own = taken(found, x, label)
    try:
        return spec_of(found.native, own)
    except ArgumentError as error:
        raise ArgumentError(f"{label} {error}") from None


def _prepared(call: Call, specs: list[Spec]) -> tuple[Any, ...] | None:
    """What takes the place of operands: zeros that are no memory, or stand-ins; None where all stay."""
    if call.prepare is None:
        return None
    stand_ins = tuple([np.broadcast_to(np.zeros((), numpy_dtype(s.dtype)), s.shape) for s in specs])
    prepared = call.prepare(stand_ins)
    if prepared is stand_ins:
        return None
    return tuple([None if new is old else new for new, old in zip(prepared, stand_ins, strict=True)])


def _replaced(
    prepared: tuple[Any, ...],
    given: tuple[Any, ...],
    libraries: list[Library | None],
    seen: list[tuple[Spec, bool]],
    native: Native,
    device: int,
) -> tuple[tuple[Any, ...], list[Library | None], list[tuple[Spec, bool]]]:
    """The operands with arrays of zeros, on the device, where `prepared` has them."""
    arrays, owners, specs = list(given), list(libraries), list(seen)
    for n, zeros in enumerate(prepared):
        if zeros is not None:
            arrays[n] = made = native.empty(zeros.shape, from_numpy(zeros.dtype), device)
            native.clear(made)
            owners[n] = library(made)
            specs[n] = spec_of(native, made)
    return tuple(arrays), owners, specs
