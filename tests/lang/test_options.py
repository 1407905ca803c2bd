"""Options as vectors."""

from __future__ import annotations

import numpy as np
import pytest

from tlm.errors import RecordError
from tlm.lang import numbers, options
from tlm.lang.vocabulary import OPTION_COLUMNS
from tlm.space.choice import Choice, Option

ROWS = Choice("rows", (Option(4, (("waste", 3.0), ("registers", 50.0))), Option(6)))
ORDER = Choice("order", (Option("mnk", (("traffic", 200.0),)), Option("nmk")))


def named(row: np.ndarray) -> dict[str, float]:
    return {name: value for name, value in zip(OPTION_COLUMNS, row.tolist(), strict=True) if value}


def test_each_fact_has_its_place():
    x = options.dense(options.pack([ROWS, ORDER]))
    first, third = named(x[0]), named(x[2])
    assert first["choice.rows"] == 1
    assert first["fact.waste/log"] == pytest.approx(2 / 8)
    assert first["fact.waste/share"] == pytest.approx(0.75)
    assert first["value/0"] == pytest.approx(float(numbers.log([4])[0]))
    assert third == pytest.approx(
        {
            "choice.order": 1,
            "word.mnk": 1,
            "fact.traffic/log": np.log2(201) / 8,
            "fact.traffic/share": 200 / 201,
        }
    )


def test_packing_together_is_packing_apart():
    together = options.dense(options.pack([ROWS, ORDER]))
    apart = np.concatenate([options.dense(options.pack([c])) for c in (ROWS, ORDER)])
    np.testing.assert_array_equal(together, apart)


@pytest.mark.parametrize(
    "choice",
    [
        Choice("tile_everything", (Option(1), Option(2))),
        Choice("rows", (Option("sideways"), Option(2))),
        Choice("rows", (Option(1, (("karma", 1.0),)), Option(2))),
    ],
)
def test_unknown_names_are_refused_by_name(choice: Choice):
    with pytest.raises(RecordError, match=r"tile_everything|sideways|karma"):
        options.pack([choice])
