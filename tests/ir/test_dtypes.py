"""There is one object of each element type, wherever it comes from."""

from __future__ import annotations

import copy
import pickle

import pytest

from tlm.ir.dtypes import DTYPES, DType, from_numpy
from tlm.ir.exprs import const, op


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_copies_and_pickles_are_the_type_itself(dtype: DType):
    assert copy.deepcopy(dtype) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert from_numpy(dtype.numpy) is dtype
    one = const(1, dtype)
    again = pickle.loads(pickle.dumps(op("add", one, one)))
    assert again == op("add", one, one)
    assert hash(again) == hash(op("add", one, one))


def test_types_differ():
    assert len(set(DTYPES.values())) == len(DTYPES)
