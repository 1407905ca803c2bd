"""Object code on disk: hits without code generation, a miss for every change, damage is a miss."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backend.programs import plain_matmul, run, target, tiled_matmul, whole_numbers
from tlm.backend import cache, compile
from tlm.backend.llvm import codegen
from tlm.ir.nodes import Program
from tlm.target import Target


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that went through code generation."""
    seen: list[str] = []
    real = codegen.object_code

    def count(text: str, target: Target) -> bytes:
        seen.append(text)
        return real(text, target)

    monkeypatch.setattr(codegen, "object_code", count)
    return seen


def right(program: Program, made: Target) -> None:
    arrays = whole_numbers(program)
    np.testing.assert_array_equal(run(compile(program, made), arrays)[0], arrays[0] @ arrays[1])


def test_unchanged_is_a_hit(compiled: list[str]) -> None:
    for _ in range(3):
        right(plain_matmul(5, 6, 7), target("avx2"))
    assert len(compiled) == 1


def test_every_change_is_a_miss(compiled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Features, vector width, threads, dtype, shape, versions of LLVM, and the generator's own source."""
    made = target("avx2")
    more = Target("avx2", features=(*made.features, "rdrnd"))
    right(plain_matmul(5, 6, 7), made)
    for program, other in (
        (plain_matmul(5, 6, 7), target("sse")), (plain_matmul(5, 6, 7), more),
        (plain_matmul(5, 6, 7), made.with_threads(2)),
        (plain_matmul(5, 6, 7, "f64"), made), (plain_matmul(5, 6, 8), made),
        (tiled_matmul(5, 6, 7, 4, 8, 8), made),
    ):  # fmt: skip
        before = len(compiled)
        right(program, other)
        right(program, other)
        assert len(compiled) == before + 1
    for module, name, value in (
        (codegen, "versions", lambda: "LLVM 99"),
        (cache, "generator", lambda: "edited"),
    ):
        before = len(compiled)
        with monkeypatch.context() as m:
            m.setattr(module, name, value)
            right(plain_matmul(5, 6, 7), made)
            right(plain_matmul(5, 6, 7), made)
        assert len(compiled) == before + 1
    before = len(compiled)
    right(plain_matmul(5, 6, 7), made)
    assert len(compiled) == before


@pytest.mark.parametrize("damage", [b"", b"tlm1", b"garbage" * 99, None])
def test_damaged_files_are_misses(damage: bytes | None, compiled: list[str]) -> None:
    right(plain_matmul(5, 6, 7), target("avx2"))
    (path,) = cache.directory().iterdir()
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if damage is None else damage)
    right(plain_matmul(5, 6, 7), target("avx2"))
    assert len(compiled) == 2
    assert path.read_bytes() == data


def test_one_line_turns_it_off(compiled: list[str]) -> None:
    cache.use_cache(False)
    try:
        right(plain_matmul(5, 6, 7), target("avx2"))
        right(plain_matmul(5, 6, 7), target("avx2"))
    finally:
        cache.use_cache(True)
    assert len(compiled) == 2
    assert not cache.directory().exists()


def test_a_folder_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from pathlib import Path

    monkeypatch.setattr(cache, "root", lambda: Path("/proc/none"))
    right(plain_matmul(5, 6, 7), target("avx2"))


def test_size_is_capped() -> None:
    for n in range(6):
        cache.save(f"{n:064}", bytes(1000))
    cache.trim(2500)
    left = sorted(p.name for p in cache.directory().iterdir())
    assert len(left) == 2
    assert cache.load(left[0]) == bytes(1000)


def test_key_has_every_part() -> None:
    made = target("avx2")
    assert cache.key("a", made, "1") == cache.key("a", Target("avx2"), "1")
    assert len({cache.key("a", made, "1"), cache.key("b", made, "1"), cache.key("a", made, "2")}) == 3
