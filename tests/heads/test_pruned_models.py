"""Measures that count per head, on models whose layers differ in their number of heads.

In the first layer the heads that are left attend as before, so their rows are those of the whole model.
"""

import numpy as np
import pytest
from support import tiny_heads as tiny

from infoflow.heads import HeadDistance, HeadLayerDistance, RelationScores, prune

GONE = [("encoder", "self", 0, 1), ("encoder", "self", 1, 0)]


@pytest.fixture(scope="module")
def readers():
    """The whole model; one with heads 0 and 2, 0 to 2 left of 3 in each layer; one with heads 0 and 2, 1 and 2."""
    corpus = tiny.trees(20)
    whole = tiny.bert(corpus)
    return [tiny.reader_of(model, corpus) for model in (whole, prune(whole, GONE[:1]), prune(whole, GONE))]


def test_relations_of_the_heads_that_are_left(readers):
    measured = [tiny.run(RelationScores(minimum=1), reader, [np.arange(20)]) for reader in readers]
    for part, counts in zip(measured[1:], ([2, 3], [2, 2]), strict=True):
        assert part.groupby("layer")["head"].nunique().tolist() == counts
        first = measured[0][(measured[0]["layer"] == 0) & (measured[0]["head"] != 1)]
        np.testing.assert_array_equal(part[part["layer"] == 0]["value"], first["value"])
        np.testing.assert_array_equal(part[part["layer"] == 0]["relation"], first["relation"])


def test_distances_of_the_heads_that_are_left(readers):
    whole, uneven, even = (tiny.run(HeadDistance(), reader, [np.arange(20)]) for reader in readers)
    ends = ["layer_a", "head_a", "layer_b", "head_b"]
    assert [tuple(row) for row in uneven[ends].to_numpy()] == [
        (0, 0, 0, 1), (0, 0, 1, 0), (0, 0, 1, 1), (0, 0, 1, 2), (0, 1, 1, 0), (0, 1, 1, 1), (0, 1, 1, 2),
        (1, 0, 1, 1), (1, 0, 1, 2), (1, 1, 1, 2),
    ]  # fmt: skip
    first = whole[(whole["layer_b"] == 0) & (whole["head_a"] == 0) & (whole["head_b"] == 2)]["distance"].item()
    assert [part.iloc[0]["distance"] for part in (uneven, even)] == pytest.approx([first, first], rel=1e-5)


def test_layers_of_unequal_heads_are_compared(readers):
    pairs = tiny.run(HeadDistance(), readers[1], [np.arange(20)])
    frame = tiny.run(HeadLayerDistance(), readers[1], [np.arange(20)]).set_index("pairs")
    within = pairs["layer_a"] == pairs["layer_b"]
    assert within.sum() == 4
    assert frame.loc["within", "value"] == pytest.approx(pairs[within]["distance"].mean())
    assert frame.loc["between", "value"] == pytest.approx(pairs[~within]["distance"].mean())
