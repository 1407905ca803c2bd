"""Counting the parallel regions of a program."""

from __future__ import annotations

from tlm.ir.nodes import Program
from tlm.ir.regions import regions
from tlm.model.shapes import Shape
from tlm.schedule import Schedule


def product() -> Program:
    return Shape("x", 32, 48, 64).program()


def test_a_region_counts_once_for_each_round_around_it():
    s = Schedule(product())
    assert regions(s.program.body) == 0
    s.split("k", 6)
    s.reorder("k.0", "i", "j", "k.1")
    s.parallel("i")
    assert regions(s.program.body) == 8


def test_a_region_inside_another_does_not_count():
    s = Schedule(product())
    s.parallel("i")
    s.parallel("j")
    assert regions(s.program.body) == 1


def test_regions_one_after_the_other_add_up():
    s = Schedule(Shape("x", 32, 48, 64, epilogue="bias").program())
    s.parallel("i")
    s.parallel("C_i")
    assert regions(s.program.body) == 2
