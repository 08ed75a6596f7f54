import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infoflow.foundation import UserError
from infoflow.representations import entropy, mutual_information

labellings = st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 5)), min_size=1, max_size=60)


def information_by_definition(a, b):
    """Σ p(a,b) ln(p(a,b) / p(a) p(b)), cell by cell."""
    total, n = 0.0, len(a)
    for s in set(a):
        for t in set(b):
            joint = sum(x == s and y == t for x, y in zip(a, b, strict=True)) / n
            if joint:
                total += joint * np.log(joint / (np.mean(np.array(a) == s) * np.mean(np.array(b) == t)))
    return total


@given(labellings)
def test_agrees_with_definition(pairs):
    a, b = zip(*pairs, strict=True)
    assert mutual_information(list(a), list(b)) == pytest.approx(information_by_definition(a, b), abs=1e-12)


@given(labellings)
def test_lies_between_zero_and_the_smaller_entropy_and_is_symmetric(pairs):
    a, b = (np.array(side) for side in zip(*pairs, strict=True))
    value = mutual_information(a, b)
    ceiling = min(mutual_information(a, a), mutual_information(b, b))
    assert 0 <= value <= ceiling + 1e-12
    assert value == pytest.approx(mutual_information(b, a), abs=1e-12)


def test_names_of_labels_do_not_matter():
    a, b = ["x", "x", "y", "z"], torch.tensor([7, 7, -1, -1])
    assert mutual_information(a, b) == mutual_information([0, 0, 1, 2], [1, 1, 0, 0])


def test_entropy_of_uniform_counts():
    assert entropy(np.array([5, 5, 5, 5])) == pytest.approx(np.log(4))


def test_miller_madow_removes_most_of_the_bias():
    """Independent labels: the true information is 0, the plug-in value about 8 · 8 / 2N."""
    rng = np.random.default_rng(0)
    draws = [rng.integers(0, 9, size=(2, 2000)) for _ in range(30)]
    plug_in = np.mean([mutual_information(*draw) for draw in draws])
    corrected = np.mean([mutual_information(*draw, estimator="miller-madow") for draw in draws])
    assert plug_in == pytest.approx(64 / 4000, rel=0.1)
    assert abs(corrected) < plug_in / 5


def test_labels_of_unequal_length_are_refused():
    with pytest.raises(UserError, match="Got 2 labels for 3 rows"):
        mutual_information([0, 1, 2], [0, 1])


def test_no_labels_are_refused():
    with pytest.raises(UserError, match="at least one label"):
        mutual_information([], [])


def test_none_is_a_label():
    a = [None, "x", None, "y", "x"]
    assert mutual_information(a, [0, 1, 0, 2, 1]) == pytest.approx(mutual_information(a, a))
    assert mutual_information(a, a) == mutual_information([0, 1, 0, 2, 1], [0, 1, 0, 2, 1]) > 1
