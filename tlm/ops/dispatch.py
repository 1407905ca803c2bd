"""From a call to a kernel: each combination of shapes, layouts, dtypes and settings is compiled once."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, BackendError
from ..target import Target
from . import kept
from .arrays import Spec, from_numbers, numpy_dtype, read
from .foreign import Back, to_arrays
from .gpu_places import on_gpu, place
from .products import Problem
from .runner import Runner, check_out
from .settings import check_threads, config, machine

if TYPE_CHECKING:
    from ..ir.nodes import Program
    from .deciders import Plan
    from .kernel import Kernel

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
        self._calls: dict[Hashable, Any] = {}

    def _problem(self, operands: tuple[Any, ...], params: tuple[Any, ...]) -> Problem:
        numbers = (list, tuple, int, float)
        arrays = [from_numbers(self.__name__, x) if isinstance(x, numbers) else x for x in operands]
        return self._describe(tuple([_spec(x) for x in arrays]), params)

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
        if 0 in problem.shape or (self._prepare and any(0 in s.shape for s in problem.operands)):
            raise ArgumentError(
                f"{self.__name__} of {[s.shape for s in problem.operands]} has nothing to compute"
            )
        how = schedule if _is_schedule(schedule) else config(schedule)
        return kernel_for(problem, how, _machine(self.__name__, operands, target, threads))

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
        check_threads(threads)
        if on_gpu(operands):
            return self._call_on_gpu(operands, params, schedule, target, threads, out)
        arrays, back = to_arrays(operands)
        if back is not None or any(x is not array for x, array in zip(operands, arrays, strict=True)):
            # What is only seen as an array is remembered by the array: of itself it may show another one.
            key = _foreign_key(arrays, params, schedule, target, threads)
            known = None if key is None else self._calls.get(key)
            if known is not None:
                return known.like(arrays, out, back)
        if self._prepare is not None:
            prepared = self._prepare(arrays)
            key = key if prepared is arrays else None
            arrays = prepared
        seen = [read(x) for x in arrays]
        problem = self._describe(tuple([spec for spec, _ in seen]), params)
        by_hand = _is_schedule(schedule)
        how = schedule if by_hand else config(schedule)
        goal = machine("cpu" if target is None else target, threads)
        if goal.kind == "cuda":
            raise BackendError(
                f"{self.__name__}: arrays of the CPU do not run on {goal.name}; give arrays of the GPU "
                "(cupy.asarray(x)), or leave target= away to run here (.kernel(..., target=) compiles only)"
            )
        if 0 in problem.shape:
            return _empty(problem, out, back)
        if out is not None:
            check_out(out, problem.shape, numpy_dtype(problem.dtype))
        call = None if by_hand else kept.load(problem, goal, how)
        if call is None:
            call = kernel_for(problem, how, goal).call
        runner = Runner(problem, call, goal.threads, [copy for _, copy in seen])
        if key is not None and not by_hand:
            bounded(self._calls, key, runner)
        return runner.like(arrays, out, back)

    def _call_on_gpu(
        self,
        operands: tuple[Any, ...],
        params: tuple[Any, ...],
        schedule: Any,
        target: Any,
        threads: int | None,
        out: Any,
    ) -> Any:
        """A call on arrays of a GPU: as `_call`, on the GPU of the arrays."""
        from .gpu_call import Call, call_key, run

        key = call_key(operands, params, schedule, target, threads)
        known = None if key is None else self._calls.get(key)
        if known is not None:
            return known(operands, out)
        by_hand = _is_schedule(schedule)
        how = schedule if by_hand else config(schedule)
        wanted = Call(self.__name__, operands, lambda specs: self._describe(specs, params), self._prepare)
        result, runner = run(wanted, target, threads, lambda p, goal: kernel_for(p, how, goal), out)
        if key is not None and runner is not None and not by_hand:
            bounded(self._calls, key, runner)
        return result


def _spec(x: Any) -> Spec:
    """The spec of an operand to compile for."""
    if isinstance(x, np.ndarray) or place(x) is None:
        return read(x)[0]
    from .gpu_call import seen_on_gpu

    return seen_on_gpu(x)[0]


def _machine(name: str, operands: tuple[Any, ...], target: Any, threads: int | None) -> Target:
    """The machine of a call: what `target` says, or (None) that of the operands."""
    if target not in (None, "cuda") or not on_gpu(operands):
        return machine("cpu" if target is None else target, threads)
    from .gpu_call import device_target

    return device_target(name, operands, threads)


def _foreign_key(arrays: tuple[np.ndarray, ...], *rest: Any) -> Hashable:
    """What a call of these arrays is remembered under; None where that has no hash."""
    key = (*[(x.shape, x.strides, x.dtype) for x in arrays], *rest)
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _is_schedule(schedule: Any) -> bool:
    # The class need not be imported to know: an object of it exists only where it was.
    module = sys.modules.get("tlm.schedule.schedule")
    return module is not None and isinstance(schedule, module.Schedule)


def _empty(problem: Problem, out: Any, back: Back | None) -> Any:
    dtype = numpy_dtype(problem.dtype)
    if out is None:
        made: np.ndarray = np.empty(problem.shape, dtype)
        return made if back is None else back(made)
    check_out(out, problem.shape, dtype)
    return out


_kernels: dict[Hashable, Kernel] = {}
_building: dict[Hashable, threading.Lock] = {}
_guard = threading.Lock()


def _after_fork() -> None:
    """A child has none of the threads that may have been building when it was forked."""
    global _guard
    _guard = threading.Lock()
    _building.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def kernel_for(problem: Problem, how: Any, target: Target) -> Kernel:
    """The kernel of a problem, decided and compiled once however many threads ask for it.

    `how` is a decider's settings, or a tlm.Schedule of the problem's program.
    """
    by_hand = _is_schedule(how)
    key = (problem, how.steps if by_hand else how, target)
    found = _kernels.get(key) or _built_once(key, problem, how, target, by_hand)
    if by_hand:
        _check_original(how, found.original)
    return found


def _built_once(key: Hashable, problem: Problem, how: Any, target: Target, by_hand: bool) -> Kernel:
    """A kernel built by the first thread that asks for it, while others wait."""
    with _guard:
        lock = _building.setdefault(key, threading.Lock())
    try:
        with lock:
            found = _kernels.get(key)
            if found is None:
                found = _build(problem, how, target, by_hand)
                bounded(_kernels, key, found)
    finally:
        with _guard:
            _building.pop(key, None)
    return found


def _check_original(how: Any, program: Program) -> None:
    """ArgumentError where a tlm.Schedule is of another program."""
    if how.original != program:
        raise ArgumentError(
            f"the schedule was made for another program than this call computes:\n{how.original}\n"
            f"against\n{program}"
        )


def _build(problem: Problem, how: Any, target: Target, by_hand: bool) -> Any:
    from .deciders import Plan, decide

    made_for = _kernel_class(target)
    if not by_hand:
        plan = decide(problem.program, target, how)
        made = made_for(problem, plan, target)
        if plan.kept:
            kept.save(made, how)
        return made
    _check_original(how, problem.program)
    return made_for(problem, Plan(how.steps), target)


def _kernel_class(target: Target) -> Callable[[Problem, Plan, Target], Any]:
    if target.kind == "cuda":
        from .gpu_kernel import GpuKernel

        return GpuKernel
    from .kernel import Kernel

    return Kernel


def bounded(kept: dict[Hashable, Any], key: Hashable, value: Any) -> None:
    """Keep `value` under `key`; the oldest is forgotten where there are too many."""
    with _guard:
        while len(kept) >= _LIMIT:
            kept.pop(next(iter(kept)))
        kept[key] = value
