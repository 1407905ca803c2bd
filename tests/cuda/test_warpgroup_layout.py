"""How the factors of a warpgroup's instruction lie in shared memory, and what its descriptors say of them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.cuda import programs, shim
from tlm.backend.cuda.emitter import emit
from tlm.errors import BackendError
from tlm.ir.dtypes import bf16, to_numpy
from tlm.ir.exprs import Const, Expr, const
from tlm.ir.nodes import Buffer, For, Program
from tlm.ir.simplify import simplify
from tlm.ir.walk import buffers, statements, substitute
from tlm.lower.gpu_descriptor import Descriptor, descriptor
from tlm.schedule.warpgroup import GroupProduct, group_product
from tlm.search.gpu_traffic import swizzled
from tlm.target import Target

SM_90A = Target("sm_90a")
needs_shim = pytest.mark.skipif(bool(shim.missing()), reason=f"the shim needs {shim.missing()}")


# How factors lie: the canonical layouts of the PTX ISA, in pieces of T = 8 elements of 16 bits

T = 8


def placed(shape: Any, strides: Any, index: int) -> int:
    """CuTe's layout function: the first mode of a nested shape runs fastest."""
    place = 0
    for n, step in zip(shape, strides, strict=True):
        index, at = divmod(index, n)
        place += at * step
    assert index == 0
    return place


def canonical(mode: int, turned: bool, leading: int, stride: int) -> Any:
    """(rows, k) -> bytes: ((rows), (k)) of the table "Canonical Layouts", then Swizzle<bits, 4, 3>."""
    bits = {0: 0, 1: 3, 2: 2, 3: 1}[mode]
    wide = 1 << bits
    if turned and mode:
        across, deep = ((T, wide, 32), (1, T, leading)), ((8, 8), (wide * T, stride))
    elif turned:
        across, deep = ((T, 1, 32), (1, T, stride)), ((8, 8), (T, leading))
    elif mode:
        across, deep = ((8, 32), (wide * T, stride)), ((T, 2), (1, T))
    else:
        across, deep = ((8, 32), (T, stride)), ((T, 2), (1, leading))

    def at(row: int, k: int) -> int:
        place = 2 * (placed(*across, row) + placed(*deep, k))
        return place ^ ((place >> 7) & (wide - 1)) << 4

    return at


KERNEL = """
extern "C" __global__ void f(const unsigned short* A, const unsigned short* B, const int* place_a,
                             const int* place_b, float* out) {
  extern __shared__ __align__(1024) unsigned short s[];
  for (int n = threadIdx.x; n < 64 * 16; n += 128) s[place_a[n]] = A[n];
  for (int n = threadIdx.x; n < COLUMNS * 16; n += 128) s[START / 2 + place_b[n]] = B[n];
  float sums[COLUMNS / 2];
  for (int n = 0; n < COLUMNS / 2; ++n) sums[n] = 0;
  tlm_shim_fence_proxy_async();
  __syncthreads();
  tlm_shim_wgmma_fence();
  const unsigned long long start = tlm_shim_shared_address(s) >> 4;
  tlm_shim_wgmma_bf16(COLUMNS, sums, start | DESC_A, (start + START / 16) | DESC_B, TURNED);
  tlm_shim_wgmma_commit();
  tlm_shim_wgmma_wait<0>();
  const int w = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  for (int n = 0; n < COLUMNS / 2; ++n)
    out[(16 * w + 8 * (n % 4 / 2) + g) * COLUMNS + 8 * (n / 4) + 2 * t + n % 2] = sums[n];
}
"""


@needs_shim
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_the_shim_reads_the_canonical_layouts(mode, turned):
    """Offsets are larger than the least ones, so that each says something."""
    wide = {0: 1, 1: 8, 2: 4, 3: 2}[mode]
    columns, start = 40, 1 << 15
    if turned:
        stride = wide * T * 8 if mode else 3 * T * 8
        leading = 4 * wide * T * 8 if mode else 32 * T * 8
    else:
        stride, leading = wide * T * 8 * 2, T * 8 * 40
    at = canonical(mode, turned, leading, stride)
    desc = mode << 62 | stride * 2 >> 4 << 32 | leading * 2 >> 4 << 16
    text = KERNEL.replace("COLUMNS", str(columns)).replace("START", str(start))
    text = re.sub("DESC_[AB]", f"{desc}ull", text).replace("TURNED", f"{int(turned)}, {int(turned)}")
    places = [np.array([[at(r, k) // 2 for k in range(16)] for r in range(n)], "i4") for n in (64, columns)]
    assert all(len(set(p.ravel())) == p.size and p.max() < start // 2 for p in places)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (n, 16)).astype(to_numpy(bf16)) for n in (64, columns))
    out = np.zeros((64, columns), "f4")
    launch = shim.Launch("f", (1,), (128,), 2 * start, (0, 1, 2, 3, 4))
    shim.run(text, [launch], [a, b, *places, out])
    np.testing.assert_array_equal(out, a.astype("f4") @ b.astype("f4").T)


@pytest.mark.parametrize("swap", [None, (2, 4, 1), (1, 4, 2)])
def test_other_places_than_those_of_a_descriptor_are_refused(swap):
    program = programs.group_product(swap=swap)
    with pytest.raises(BackendError, match=r"the places of acc_a are .*, those it reads \(64, 8, 8\)"):
        emit(program, SM_90A)


def _instruction(program: Program) -> tuple[GroupProduct, dict[str, Buffer], dict[str, int]]:
    """The product in a scheduled program, its buffers, and the extents of all loops."""
    loops = [x for x in statements(program.body) if isinstance(x, For)]
    found = next(p for p in map(group_product, loops) if p is not None)
    return found, buffers(program), {x.var: x.extent for x in loops}


def _numbers(index: Expr, at: dict[str, int]) -> int:
    value = simplify(substitute(index, {k: const(v) for k, v in at.items()}), {})
    assert isinstance(value, Const)
    return int(value.value)


def _at(buffer: Buffer, indices: tuple[Expr, ...], at: dict[str, int]) -> int:
    """Bytes from the start of a buffer to an element."""
    place = sum(_numbers(i, at) * s for i, s in zip(indices, buffer.element_strides, strict=True))
    assert buffer.swizzle is not None
    return 2 * swizzled(place, buffer.swizzle)


@pytest.mark.parametrize("turned", [False, True])
def test_a_descriptor_says_where_copies_put_every_element(turned):
    program = programs.group_product(m=128, rows=128, columns=128, n=128, turned=turned)
    p, known, extents = _instruction(program)
    lane, warps = (str(getattr(p.update.indices[n], "name", "")) for n in (1, 0))
    for side, load, own in (("left", p.left, 64), ("right", p.right, 128)):
        buffer = known[load.buffer]
        d = descriptor(p, side, buffer, warps, lane, extents)
        assert isinstance(d, Descriptor), d
        assert d.turned == (side == "right" and not turned)
        reads = canonical(1, d.turned, d.leading // 2, d.stride // 2)
        others = sorted(extents.keys() - {lane, warps, p.k.var, p.j.var, p.m.var, p.n.var})
        for y, step in ((0, 0), (4, 1), (7, 3)):
            at = {v: min(step, extents[v] - 1) for v in others}
            start = _at(buffer, d.start, {**at, warps: y})
            for r in range(0, own, 3):
                for k in (0, 1, 7, 8, 15):
                    if side == "left":
                        own_at = {p.m.var: r % 16 // 8, lane: r % 8 * 4 + k % 4, warps: y // 4 * 4 + r // 16}
                    else:
                        own_at = {p.j.var: r // 8, p.n.var: r % 2, lane: r % 8 // 2 + 4 * (k % 8), warps: y}
                    lies = _at(buffer, load.indices, {**at, **own_at, p.k.var: k, **_missing(p, own_at)})
                    # Pieces change places by the address, which the start is a part of.
                    plain = start + (reads(r, k) ^ (reads(r, k) >> 7 & 7) << 4)
                    assert lies == plain ^ (plain >> 7 & 7) << 4


def _missing(p: GroupProduct, at: dict[str, int]) -> dict[str, int]:
    return {x.var: 0 for x in (p.j, p.m, p.n) if x.var not in at}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (dict(strides=(128, 1)), "acc_a is not in rows of 64 elements"),
        (dict(strides=(1, 64)), "acc_a is not in rows of 64 elements"),
        (dict(shape=(64, 32)), "acc_a is not in rows of 64 elements"),
        (dict(memory="heap"), "acc_a is not in shared memory"),
    ],
)
def test_what_lies_otherwise_is_refused(change, reason):
    p, known, extents = _instruction(programs.group_product())
    warps, lane = (str(getattr(i, "name", "")) for i in p.update.indices[:2])
    buffer = replace(known["acc_a"], **change)
    found = descriptor(p, "left", buffer, warps, lane, extents)
    assert isinstance(found, str)
    assert reason in found


def test_steps_of_half_an_instruction_are_refused():
    """Starts that are no whole steps of 16 along k, or no whole groups of eight rows."""
    p, known, extents = _instruction(programs.group_product())
    warps, lane = (str(getattr(i, "name", "")) for i in p.update.indices[:2])
    row, k = p.left.indices
    for moved in ((row, k + 8), (row + 4, k), (row, k + 56)):
        odd = replace(p, left=replace(p.left, indices=moved))
        found = descriptor(odd, "left", known["acc_a"], warps, lane, extents)
        assert isinstance(found, str)
        assert "not in rows of 64" in found
