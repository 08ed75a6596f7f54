from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infoflow.corpus import length_batches
from infoflow.foundation import UserError


@given(
    lengths=st.lists(st.integers(1, 40), max_size=60),
    budget=st.integers(1, 200),
    most=st.one_of(st.none(), st.integers(1, 8)),
)
def test_batches_partition_the_rows_within_the_budget(lengths, budget, most):
    lengths = np.array(lengths, dtype=np.int32)
    batches = length_batches(lengths, budget, most)
    rows = np.concatenate([*batches, np.empty(0, dtype=np.int64)]).astype(int)
    assert sorted(rows) == list(range(len(lengths)))
    assert (np.diff(lengths[rows]) >= 0).all()
    for batch in batches:
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= budget
        assert most is None or len(batch) <= most


@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=60), budget=st.integers(1, 200))
def test_batches_are_as_full_as_the_order_allows(lengths, budget):
    lengths = np.array(lengths, dtype=np.int32)
    batches = length_batches(lengths, budget)
    for batch, following in pairwise(batches):
        assert (len(batch) + 1) * lengths[following[0]] > budget


def test_budget_below_one():
    with pytest.raises(UserError, match="at least 1"):
        length_batches(np.array([1]), 0)
