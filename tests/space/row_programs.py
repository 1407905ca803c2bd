"""Programs of rows and maps on small awkward shapes, and checks of one random schedule of each."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np

import tlm
import tlm.ir.build
from tlm.backend import compile
from tlm.ir.dtypes import to_numpy
from tlm.ir.interpret import interpret
from tlm.ir.nodes import Program
from tlm.schedule import apply
from tlm.space.decide import Decided, at_random, run
from tlm.space.spaces import space_for
from tlm.target import Target

LEVELS = ("avx512", "avx2", "sse")


def array(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.empty(shape, dtype)


ROWS: dict[str, Callable[[], Program]] = {
    "softmax": lambda: tlm.ops.softmax.program(array(5, 37)),
    "softmax of one row": lambda: tlm.ops.softmax.program(array(1, 70)),
    "softmax of columns": lambda: tlm.ops.softmax.program(array(13, 19), axis=0),
    "softmax of a middle axis": lambda: tlm.ops.softmax.program(array(3, 7, 11), axis=1),
    "softmax of a transposed array": lambda: tlm.ops.softmax.program(array(19, 13).T),
    "softmax of f64": lambda: tlm.ops.softmax.program(array(4, 23, dtype="float64")),
    "softmax of f16": lambda: tlm.ops.softmax.program(array(4, 40, dtype="float16")),
    "log_softmax": lambda: tlm.ops.log_softmax.program(array(6, 33)),
    "layer_norm": lambda: tlm.ops.layer_norm.program(array(7, 45), array(45), array(45)),
    "layer_norm of two axes": lambda: tlm.ops.layer_norm.program(array(3, 5, 17), axis=(1, 2)),
    "rms_norm": lambda: tlm.ops.rms_norm.program(array(3, 100), array(100)),
    "sum": lambda: tlm.ops.sum.program(array(3, 29)),
    "sum of rows": lambda: tlm.ops.sum.program(array(9, 29), axis=1),
    "sum of columns": lambda: tlm.ops.sum.program(array(9, 29), axis=0),
    "sum of outer axes": lambda: tlm.ops.sum.program(array(4, 5, 19), axis=(0, 1)),
    "sum of the ends": lambda: tlm.ops.sum.program(array(4, 5, 19), axis=(0, 2)),
    "sum of a long row": lambda: tlm.ops.sum.program(array(2, 9000), axis=1),
    "mean over space": lambda: tlm.ops.mean.program(array(2, 3, 3, 21), axis=(1, 2)),
    "var": lambda: tlm.ops.var.program(array(6, 31), axis=-1),
    "max": lambda: tlm.ops.max.program(array(6, 31), axis=-1),
    "min of int8": lambda: tlm.ops.min.program(array(6, 31, dtype="int8"), axis=-1),
    "sum of int8": lambda: tlm.ops.sum.program(array(6, 31, dtype="int8"), axis=-1),
    "argmax": lambda: tlm.ops.argmax.program(array(6, 31), axis=-1),
    "argmin of columns": lambda: tlm.ops.argmin.program(array(31, 6), axis=0),
    "logsumexp": lambda: tlm.ops.logsumexp.program(array(5, 27), axis=-1),
    "any": lambda: tlm.ops.any.program(array(5, 27, dtype="bool"), axis=-1),
    "cumsum": lambda: tlm.ops.cumsum.program(array(3, 41), axis=1),
    "prod of scalars": lambda: tlm.ops.prod.program(array(1)),
}


def _values(program: Program, seed: int) -> list[np.ndarray]:
    """Small integers; halves of them where the dtype is a float, so that sums stay exact."""
    rng = np.random.default_rng(seed)
    out = []
    for b in program.inputs:
        dtype = to_numpy(b.dtype)
        x = rng.integers(0, 2, b.shape) if b.dtype.kind == "bool" else rng.integers(-3, 4, b.shape)
        made = np.lib.stride_tricks.as_strided(
            np.zeros(1 + sum((n - 1) * s for n, s in zip(b.shape, b.element_strides, strict=True)), dtype),
            b.shape,
            [s * dtype.itemsize for s in b.element_strides],
        )
        made[...] = x
        out.append(made)
    return out


def decided(program: Program, seed: int) -> tuple[Target, Decided]:
    target = Target(LEVELS[seed % 3], threads=(1, 2, 8)[seed % 7 % 3])
    return target, run(space_for(program, target), at_random(Random(seed)))


def check(program: Program, seed: int, exact: bool) -> tuple[str, ...]:
    """Compare a random schedule with the program in the interpreter, and its kernel with both.

    Returns the names of the choices.
    """
    target, found = decided(program, seed)
    inputs = _values(program, seed)
    wanted = interpret(program, inputs)
    scheduled = apply(program, found.steps)
    outs = [np.zeros(b.shape, to_numpy(b.dtype)) for b in program.outputs]
    compile(scheduled, target, cache=False)(*inputs, *outs, threads=min(target.threads, 2))
    for got in (interpret(scheduled, inputs), outs):
        for a, b in zip(got, wanted, strict=True):
            if exact:
                np.testing.assert_array_equal(a, b, err_msg=str(found.values))
            else:
                wide = np.float64
                tolerance = 2e-3 if b.dtype.itemsize == 2 else 3e-6
                np.testing.assert_allclose(
                    a.astype(wide), b.astype(wide), tolerance, tolerance, err_msg=str(found.values)
                )
    return tuple(choice.name for choice, _ in found.choices)


MAPS: dict[str, Callable[[], Program]] = {
    "exp": lambda: tlm.ops.exp.program(array(7, 29)),
    "gelu of a scalar": lambda: tlm.ops.gelu.program(array(1)),
    "add of a row": lambda: tlm.ops.add.program(array(7, 29), array(29)),
    "add of a column": lambda: tlm.ops.add.program(array(7, 29), array(7, 1)),
    "add of a transposed array": lambda: tlm.ops.add.program(array(17, 29), array(29, 17).T),
    "add of three channels": lambda: tlm.ops.multiply.program(array(40, 3), array(3)),
    "batch_norm": lambda: tlm.ops.batch_norm.program(array(2, 5, 19), array(19), array(19), array(19)),
    "batch_norm of NCHW": lambda: tlm.ops.batch_norm.program(array(2, 5, 19), array(5), array(5), axis=1),
    "transpose": lambda: tlm.ops.transpose.program(array(37, 21)),
    "transpose of f64": lambda: tlm.ops.transpose.program(array(9, 18, dtype="float64")),
    "transpose of int8": lambda: tlm.ops.transpose.program(array(19, 33, dtype="int8")),
    "transpose of inner axes": lambda: tlm.ops.transpose.program(array(3, 18, 17), (0, 2, 1)),
    "transpose of outer axes": lambda: tlm.ops.transpose.program(array(5, 7, 18), (1, 0, 2)),
    "reversed axes": lambda: tlm.ops.transpose.program(array(5, 18, 19)),
    "concatenate": lambda: tlm.ops.concatenate.program([array(5, 13), array(5, 20), array(5, 1)], axis=1),
    "concatenate rows": lambda: tlm.ops.concatenate.program([array(5, 13), array(2, 13)], axis=0),
    "pad": lambda: tlm.ops.pad.program(array(5, 13), ((1, 2), (3, 4))),
    "pad by reflection": lambda: tlm.ops.pad.program(array(5, 13), ((1, 2), (3, 4)), mode="reflect"),
    "flip": lambda: tlm.ops.flip.program(array(5, 21), axis=1),
    "take of rows": lambda: tlm.ops.take.program(array(9, 17), array(5, dtype="int64"), axis=0, mode="clip"),
    "take of columns": lambda: tlm.ops.take.program(
        array(9, 17), array(20, dtype="int32"), axis=1, mode="wrap"
    ),
    "broadcast_to": lambda: tlm.ops.broadcast_to.program(array(1, 17), (6, 17)),
    "astype": lambda: tlm.ops.astype.program(array(6, 35), "float16"),
    "where": lambda: tlm.ops.where.program(array(6, 35, dtype="bool"), array(6, 35), array(35)),
}


def _attention(time: int, keys: int, heads: int, width: int, **settings: object) -> Program:
    groups = settings.pop("groups", heads)
    q, k = array(time, heads, width), array(keys, groups, width)
    return tlm.ops.dot_product_attention.program(q, k, k, **settings)


def _scores() -> Program:
    """A softmax of a product, with a transposed factor: what a classifier ends with."""
    b = tlm.ir.build.Builder("scores")
    x, w = b.input("x", (9, 21), "f32"), b.input("w", (21, 19), "f32")
    p = b.reduce("p", (9, 19), {"k": 21}, lambda i, j, k: x[i, k] * w[k, j])
    m = b.reduce("m", (9,), {"j": 19}, lambda i, j: p[i, j], combiner="max", axes=("i",))
    b.compute("y", (9, 19), lambda i, j: p[i, j] - m[i], output=True)
    return b.build()


ATTENTION: dict[str, Callable[[], Program]] = {
    "plain": lambda: _attention(13, 19, 3, 8),
    "causal": lambda: _attention(21, 21, 2, 17, is_causal=True),
    "one query": lambda: _attention(1, 37, 2, 16),
    "one head": lambda: _attention(18, 35, 1, 5),
    "shared keys": lambda: _attention(7, 11, 4, 8, groups=2),
    "a mask": lambda: _attention(7, 11, 2, 8, mask=array(1, 7, 11, dtype="bool")),
    "a bias": lambda: _attention(7, 11, 2, 8, bias=array(2, 7, 11)),
    "batches": lambda: tlm.ops.dot_product_attention.program(
        array(2, 7, 3, 8), array(2, 9, 3, 8), array(2, 9, 3, 8)
    ),
    "f64": lambda: tlm.ops.dot_product_attention.program(*[array(7, 3, 8, dtype="float64")] * 3),
    "f16": lambda: tlm.ops.dot_product_attention.program(*[array(7, 3, 8, dtype="float16")] * 3),
    "scores": _scores,
}
