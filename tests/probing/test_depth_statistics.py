"""Expected layers and mixing statistics: the published scores, explicit loops, and limits."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infoflow.probing import (
    center_of_gravity,
    contextual_headroom,
    depth_warnings,
    differential_scores,
    expected_layer,
    kl_from_uniform,
    kl_of_differences,
    mixing_entropy,
    negative_mass,
)

SCORES = pd.read_csv(Path(__file__).with_name("tenney_scores.csv"), comment="#", index_col=0)
POS, CONSTITUENTS, DEPENDENCIES = "pos-ontonotes", "nonterminal-ontonotes", "dep-labeling-ewt"
TABLE = [  # task, base, large: the printed digits of the specification; None is not printed there
    (POS, None, 3.386),
    (CONSTITUENTS, 2.382, None),
    (DEPENDENCIES, 2.518, None),
    ("ner-ontonotes", 2.415, 4.645),
    ("srl-conll2012", 2.588, 6.537),
    ("coref-ontonotes", None, 9.471),
    ("spr1", 4.293, 9.929),
    ("spr2", 4.182, 11.814),
    ("rel-semeval", 4.158, 9.400),
    ("rel-tacred", 4.165, 9.313),
    ("dpr", 23.92, 20.27),
]


def scores(task, size):
    rows = SCORES[SCORES.index.str.startswith(f"{task}-")]
    assert len(rows) == 1
    return rows.filter(like=f"bert-{size}").to_numpy(dtype=float)[0]


@pytest.mark.parametrize(
    ("task", "size", "printed"),
    [(row[0], size, value) for row in TABLE for size, value in zip(("base", "large"), row[1:], strict=True) if value],
)
def test_published_expected_layers(task, size, printed):
    digits = 2 if task == "dpr" else 3
    assert round(expected_layer(scores(task, size)), digits) == printed


def by_loop(values):
    above = below = 0.0
    for layer in range(1, len(values)):
        delta = values[layer] - values[layer - 1]
        above, below = above + layer * delta, below + delta
    return above / below


def test_published_order_and_warnings():
    for size in ("base", "large"):
        order = [POS, CONSTITUENTS, DEPENDENCIES, "srl-conll2012", "coref-ontonotes"]
        found = [expected_layer(scores(task, size)) for task in order]
        assert found == sorted(found)
        assert found == pytest.approx([by_loop(scores(task, size)) for task in order])
    ill_defined = [task for task, *_ in TABLE if "top layer" in depth_warnings(scores(task, "base"))]
    assert ill_defined == ["dpr"]
    assert expected_layer(scores("dpr", "base")) > 12
    steady = expected_layer(scores("dpr", "base"), running_maximum=True)
    assert 0 < steady < 12
    peaks_early = sum(scores(task, "base").argmax() < 12 for task, *_ in TABLE)
    assert peaks_early == 9


@given(st.lists(st.floats(0, 100), min_size=3, max_size=20))
def test_of_any_scores(values):
    values = [round(value, 3) for value in values]
    deltas = differential_scores(values)
    assert deltas.sum() == pytest.approx(values[-1] - values[0], abs=1e-6)
    assert 0 <= contextual_headroom(values) == pytest.approx(max(values) - values[0])
    if np.abs(deltas).sum() > 0:
        assert 0 <= negative_mass(values) <= 1
        loss = sum(-min(values[i + 1] - values[i], 0) for i in range(len(values) - 1))
        assert negative_mass(values) == pytest.approx(loss / np.abs(deltas).sum(), abs=1e-9)
    if max(values) > values[0]:
        assert 1 <= expected_layer(values, running_maximum=True) <= len(values) - 1 + 1e-9
    if (deltas > 0).any():
        gains = [max(delta, 0) for delta in deltas]
        shares = [gain / sum(gains) for gain in gains]
        expected = sum(share * np.log2(share * len(gains)) for share in shares if share > 0)
        assert kl_of_differences(values) == pytest.approx(expected, abs=1e-6)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=20))
def test_of_any_mix(logits):
    weights = np.exp(logits) / np.exp(logits).sum()
    assert kl_from_uniform(weights) == pytest.approx(np.log2(len(weights)) - mixing_entropy(weights))
    assert kl_from_uniform(weights) >= -1e-9
    assert 0 <= center_of_gravity(weights) <= len(weights) - 1
    upper = weights[1:] / weights[1:].sum()
    assert center_of_gravity(weights, "oneplus") == pytest.approx(sum(w * i for i, w in enumerate(upper, start=1)))


def test_limits():
    assert kl_from_uniform([0.25] * 4) == 0
    assert kl_from_uniform([0.5, 0.5, np.nan, -np.inf]) == 0
    assert center_of_gravity([0.25] * 4) == 1.5
    assert expected_layer([0, 0, 1]) == 2
    assert np.isnan(expected_layer([1.0, 2.0, 1.0]))
    assert np.isnan(kl_of_differences([2.0, 1.0]))
    several = np.array([[0, 1, 2.0], [0, 0, 3.0]])
    np.testing.assert_allclose(expected_layer(several), [1.5, 2])
    assert "loss" in depth_warnings([0, 50, 10, 20])
    assert depth_warnings([0, 50, 60, 61]) == ""


def test_tensors_and_lists_are_alike():
    values = [1.0, 3.0, 4.0]
    assert expected_layer(torch.tensor(values)) == expected_layer(values) == expected_layer(np.array(values))
