"""Targets: presets, the host, and limits of the process (kinds P: affinity and container limits)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tlm.errors import ArgumentError, RecordError
from tlm.target import Target, available_threads, cache_sizes, cgroup_quota, cpu_features, host, level

LEVELS = ("avx512", "avx2", "sse", "neon")


@pytest.mark.parametrize("name", [*LEVELS, "sm_80", "sm_90", "cpu"])
def test_survives_json(name: str):
    target = Target(name)
    assert Target.from_json(target.to_json()) == target
    assert Target.from_json(target.to_json()).key == target.key


def test_levels_differ_in_every_way_that_matters():
    assert [Target(n).vector_bytes for n in LEVELS] == [64, 32, 16, 16]
    assert [Target(n).registers for n in LEVELS] == [32, 16, 16, 32]
    assert [Target(n).fma for n in LEVELS] == [True, True, False, True]
    assert len({Target(n).key for n in LEVELS}) == 4
    assert Target("avx512").lanes(4) == 16
    assert set(Target("sse").features) < set(Target("avx2").features) < set(Target("avx512").features)


def test_figures_can_be_overridden():
    target = Target("avx2", l2=1 << 20, threads=8)
    assert (target.l2, target.threads, target.l1) == (1 << 20, 8, 32 << 10)
    assert target.with_threads(1).with_threads(8) == target
    assert target.key != Target("avx2").key


@pytest.mark.parametrize(
    "figures", [{"l1": 0}, {"threads": -1}, {"threads": True}, {"l2": 1.5}, {"isa": "mmx"}, {"colour": 1}]
)
def test_impossible_figures_are_refused(figures: dict):
    with pytest.raises(ArgumentError, match=next(iter(figures))):
        Target("avx2", **figures)


def test_unknown_names_are_refused():
    with pytest.raises(ArgumentError, match=r"unknown target 'avx1024'.*avx512"):
        Target("avx1024")


def test_json_is_checked():
    good = Target("avx2").to_json()
    for bad in (
        {},
        [],
        good | {"extra": 1},
        good | {"l1": "big"},
        good | {"name": 'x"y'},
        good | {"features": [";"]},
    ):
        with pytest.raises(RecordError):
            Target.from_json(bad)


def test_the_host_is_read_and_runs_its_own_kernels():
    assert host() == Target("cpu")
    assert host().runs_here()
    assert host().threads >= 1
    lower = host().with_isa("sse") if host().isa != "neon" else host()
    assert lower.runs_here()
    assert (lower.l1, lower.l2, lower.l3) == (host().l1, host().l2, host().l3)


def test_level_is_the_widest_that_is_complete():
    assert level(Target("avx512").features) == "avx512"
    assert level(set(Target("avx512").features) - {"avx512vl"}) == "avx2"
    assert level(set(Target("avx2").features) - {"fma"}) == "sse"


def test_cpuinfo_is_spelt_as_llvm_does(tmp_path: Path):
    (tmp_path / "cpuinfo").write_text("processor : 0\nflags\t\t: pni sse4_2 abm avx512_bf16 fma\n")
    assert cpu_features(tmp_path / "cpuinfo") == {"sse3", "sse4.2", "lzcnt", "avx512bf16", "fma"}
    assert cpu_features(tmp_path / "missing") == frozenset()


def test_cache_sizes(tmp_path: Path):
    for n, (kind, depth, size) in enumerate(
        [("Data", 1, "48K"), ("Instruction", 1, "32K"), ("Unified", 2, "2048K"), ("Unified", 3, "256M")]
    ):
        folder = tmp_path / "cpu0" / "cache" / f"index{n}"
        folder.mkdir(parents=True)
        for name, value in (("type", kind), ("level", depth), ("size", size)):
            (folder / name).write_text(f"{value}\n")
    assert cache_sizes(tmp_path) == {"l1": 48 << 10, "l2": 2 << 20, "l3": 256 << 20}
    assert cache_sizes(tmp_path / "nothing") == {}


def group(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "self" / "cgroup").write_text(cgroup)
    for name, text in files.items():
        path = root / "sys" / "fs" / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_quota_of_version_2(tmp_path: Path):
    root = group(
        tmp_path,
        "0::/a/b\n",
        {"cpu.max": "max 100000", "a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000"},
    )
    assert cgroup_quota(root) == 2.0
    assert available_threads(root) == min(2, available_threads())


def test_quota_of_version_1(tmp_path: Path):
    files = {"cpu/d/cpu.cfs_quota_us": "150000", "cpu/d/cpu.cfs_period_us": "100000"}
    root = group(tmp_path, "3:memory:/x\n1:cpu,cpuacct:/d\n", files)
    assert cgroup_quota(root) == 1.5
    assert available_threads(root) == 1


def test_no_quota(tmp_path: Path):
    assert cgroup_quota(tmp_path) is None
    assert cgroup_quota(group(tmp_path, "0::/\n", {"cpu.max": "max 100000"})) is None
    assert cgroup_quota(group(tmp_path / "odd", "0::/\n", {"cpu.max": "nonsense"})) is None


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no CPU affinity")
def test_affinity_is_respected():
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from tlm.target import host; print(host().threads)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"
