"""From a call to a kernel: each combination of shapes, layouts, dtypes and settings is compiled once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from ..errors import ArgumentError, BackendError
from ..ir.nodes import Program
from ..schedule.schedule import Schedule
from ..target import Target, host
from .arrays import Spec, numpy_dtype, read, to_arrays
from .deciders import Plan, config, decide
from .kernel import Kernel, Runner, check_out
from .products import Problem

Describe = Callable[[tuple[Spec, ...], tuple[Any, ...]], Problem]
"""(operands, parameters of the operator) -> what to compute."""
Prepare = Callable[[tuple[np.ndarray, ...]], tuple[np.ndarray, ...]]

_LIMIT = 8192
"""Most calls, and most kernels, that are remembered at once; the oldest are forgotten first."""


class Operator:
    """What operators share. `prepare` may replace operands that no kernel takes, such as empty sums."""

    def __init__(self, name: str, describe: Describe, prepare: Prepare | None = None) -> None:
        self.__name__ = name
        self._describe = describe
        self._prepare = prepare
        self._calls: dict[Hashable, Runner] = {}

    def _problem(self, operands: tuple[Any, ...], params: tuple[Any, ...]) -> Problem:
        specs = [read(np.asarray(x) if isinstance(x, (list, tuple, int, float)) else x)[0] for x in operands]
        return self._describe(tuple(specs), params)

    def _program(self, operands: tuple[Any, ...], params: tuple[Any, ...]) -> Program:
        return self._problem(operands, params).program

    def _kernel(
        self,
        operands: tuple[Any, ...],
        params: tuple[Any, ...],
        schedule: Any,
        target: Any,
        threads: int | None,
    ) -> Kernel:
        problem = self._problem(operands, params)
        if 0 in problem.shape or any(0 in s.shape for s in problem.operands):
            raise ArgumentError(
                f"{self.__name__} of {[s.shape for s in problem.operands]} has nothing to compute"
            )
        return kernel_for(problem, schedule, machine(target, threads))

    def _call(
        self,
        key: Hashable,
        operands: tuple[Any, ...],
        params: tuple[Any, ...],
        schedule: Any,
        target: Any,
        threads: int | None,
        out: Any,
    ) -> Any:
        """A call that is not in `_calls`: decide, compile, run; remember it under `key`, if there is one."""
        arrays, back = to_arrays(operands)
        if back is not None:
            key = None
            if out is not None:
                raise ArgumentError("out= is for numpy operands")
        if self._prepare is not None:
            prepared = self._prepare(arrays)
            key = key if prepared is arrays else None
            arrays = prepared
        seen = [read(x) for x in arrays]
        problem = self._describe(tuple([spec for spec, _ in seen]), params)
        config_or_schedule = schedule if isinstance(schedule, Schedule) else config(schedule)
        goal = machine(target, threads)
        if 0 in problem.shape:
            return _empty(problem, out)
        if out is not None:
            check_out(out, problem.shape, numpy_dtype(problem.dtype))
        kernel = kernel_for(problem, config_or_schedule, goal)
        runner = Runner(kernel, [copy for _, copy in seen])
        if key is not None and not isinstance(schedule, Schedule) and not any(copy for _, copy in seen):
            _bounded(self._calls, key, runner)
        result = runner(arrays, out)
        return result if back is None else back(result)


def _empty(problem: Problem, out: Any) -> np.ndarray:
    dtype = numpy_dtype(problem.dtype)
    if out is None:
        return np.empty(problem.shape, dtype)
    check_out(out, problem.shape, dtype)
    return out  # type: ignore[no-any-return]


def machine(target: Any, threads: int | None) -> Target:
    """The target that `target=` and `threads=` name.

    "cpu" is this machine; the name of a CPU level is this machine restricted to it, or a common machine of
    that level where this one lacks it. `threads` defaults to what the process may use.
    """
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise ArgumentError(f"threads= is an integer of at least 1, got {threads!r}")
    if isinstance(target, Target):
        found = target
    elif isinstance(target, str):
        found = _named(target)
    else:
        raise ArgumentError(f"target= is 'cpu', the name of a level, or a tlm.Target, got {target!r}")
    if found.kind == "cuda":
        raise BackendError("this version has no CUDA backend; use target='cpu'")
    return found if threads is None else found.with_threads(threads)


def _named(name: str) -> Target:
    if name == "cpu":
        return host()
    preset = Target("sm_90" if name == "cuda" else name)
    return host().with_isa(name) if preset.kind == "cpu" and preset.runs_here() else preset


_kernels: dict[Hashable, Kernel] = {}
_building: dict[Hashable, threading.Lock] = {}
_guard = threading.Lock()


def kernel_for(problem: Problem, schedule: Any, target: Target) -> Kernel:
    """The kernel of a problem, decided and compiled once however many threads ask for it."""
    if isinstance(schedule, Schedule) and schedule.original != problem.program:
        raise ArgumentError(
            f"the schedule was made for another program than this call computes:\n{schedule.original}\n"
            f"against\n{problem.program}"
        )
    steps = schedule.steps if isinstance(schedule, Schedule) else None
    how = None if steps is not None else config(schedule)
    key = (problem.program, problem.shape, how if steps is None else steps, target)
    found = _kernels.get(key)
    if found is not None:
        return found
    with _guard:
        lock = _building.setdefault(key, threading.Lock())
    with lock:
        found = _kernels.get(key)
        if found is None:
            plan = Plan(steps) if how is None else decide(problem.program, target, how)  # type: ignore[arg-type]
            found = Kernel(problem, plan, target)
            _bounded(_kernels, key, found)
    with _guard:
        _building.pop(key, None)
    return found


def _bounded(kept: dict[Hashable, Any], key: Hashable, value: Any) -> None:
    with _guard:
        while len(kept) >= _LIMIT:
            kept.pop(next(iter(kept)))
        kept[key] = value
