"""Relevance beside confidence: the numbers of each seed, and the claim on them."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from infoflow.findings import FINDINGS, dominant_heads, evaluate

from .groups import models_of

RELEVANCE = {0: (0.70, 0.20, 0.10), 1: (0.15, 0.25, 0.60)}
CONFIDENCE = {0: (0.20, 0.60, 0.50), 1: (0.30, 0.40, 0.90)}
RARE = {0: (0.60, 0.20, 0.10), 1: (0.99, 0.10, 0.10)}


def table(heads, seeds=(1, 2, 3), untrained=None, **extra):
    rows = [
        {"objective": "translation", "seed": seed, "trained": trained, "stack": "encoder", "kind": "self"}
        | {"layer": layer, "head": head, "value": value, "baseline": 0.33, "replicates": [value] * 10, **extra}
        for seed in seeds
        for trained, values in ((True, heads), (False, untrained or dict.fromkeys(heads, (0.33,) * 3)))
        for layer, row in values.items()
        for head, value in enumerate(row)
    ]
    return pd.DataFrame(rows)


def tables(**changes):
    found = {
        "head_relevance": table(RELEVANCE, normalise="signed", method="voita"),
        "head_confidence": table(CONFIDENCE),
        "head_rare_token": table(RARE, rarest=1),
    }
    return {name: frame for name, frame in (found | changes).items() if frame is not None}


def test_numbers_of_each_seed():
    found = dominant_heads().estimates(models_of(tables()))
    agreement = spearmanr((0.2, 0.1, 0.15, 0.25, 0.6), (0.6, 0.5, 0.3, 0.4, 0.9)).statistic  # without head 0 of layer 0
    np.testing.assert_allclose(found.values_UK, [[2.1, 1.8, agreement, 2.1]] * 3)
    assert found.replicates_URK.shape == (3, 10, 4)


def test_without_rare_token_scores_all_heads_are_compared():
    found = dominant_heads().estimates(models_of(tables(head_rare_token=None)))
    relevance, confidence = (sum(part.values(), ()) for part in (RELEVANCE, CONFIDENCE))
    assert found.values_UK[0, 2] == pytest.approx(spearmanr(relevance, confidence).statistic)
    assert np.isnan(found.values_UK[:, 3]).all()


def scores():
    rows = [
        {"model": f"translation/seed-{seed}", "objective": "translation", "seed": seed, "trained": trained}
        | {"split": "test", "metric": metric, "value": value, "baseline": baseline}
        | {"low": value, "high": value, "replicates": [value] * 10}
        for seed in (1, 2, 3)
        for trained in (True, False)
        for metric, value, baseline in (("loss", 2.0, 6.0), ("bleu", 30.0, 1.5))
    ]
    return pd.DataFrame(rows)


def verdict(**changes):
    return evaluate(tables(task_scores=scores(), **changes), [FINDINGS["heads:V6"]]).iloc[0]


def test_the_claim_holds_and_fails():
    holds = verdict()
    assert holds["verdict"] == "holds", holds["reason"]
    assert "rare-token head" in holds["note"]
    flat = verdict(head_relevance=table(RELEVANCE | {1: (0.3, 0.3, 0.4)}))
    assert flat["verdict"] == "fails"
    assert "block 1" in flat["reason"]
    shy = {layer: tuple(1 - value for value in row) for layer, row in CONFIDENCE.items()}
    assert verdict(head_confidence=table(shy))["verdict"] == "fails"
    assert "rare-token head" not in verdict(head_rare_token=None)["note"]


def test_an_untrained_model_that_shows_it_too_leaves_it_open():
    same = {name: table(heads, untrained=heads) for name, heads in (("head_relevance", RELEVANCE),)}
    same["head_confidence"] = table(CONFIDENCE, untrained=CONFIDENCE)
    same["head_rare_token"] = table(RARE, untrained=RARE, rarest=1)
    assert verdict(**same)["verdict"] == "undetermined"


def test_a_layer_with_one_head_is_too_few():
    one, flat = {0: (1.0,)}, {0: (1.0,), 1: (0.33,) * 3}
    row = verdict(
        head_relevance=table(RELEVANCE | one, untrained=flat, normalise="signed", method="voita"),
        head_confidence=table(CONFIDENCE | one, untrained=flat),
        head_rare_token=None,
    )
    assert row["verdict"] == "not testable here"
    assert row["reason"].startswith("Too few heads: block 0 has one")
