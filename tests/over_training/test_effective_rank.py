"""The effective rank of states against a decomposition of each resample, and what it must not depend on."""

import numpy as np
import pytest

from infoflow.flow import measure
from infoflow.foundation import NUM_BLOCKS, UserError, replicate_weights
from infoflow.over_training import EffectiveRank
from infoflow.over_training import _effective_rank as module


def rank_of(states, weights=None) -> float:
    """By the eigenvalues of numpy's weighted covariance."""
    shares = np.linalg.eigvalsh(np.cov(states.T, aweights=weights, bias=True)).clip(0)
    shares = shares[shares > 0] / shares.sum()
    return float(np.exp(-sum(share * np.log(share) for share in shares)))


def drawn(num=4000, width=6, seed=0):
    rng = np.random.default_rng(seed)
    scales = np.geomspace(1, 0.05, width)
    states = rng.standard_normal((num, width)) * scales @ np.linalg.qr(rng.standard_normal((width, width)))[0] + 3
    return states.astype(np.float32), rng.integers(0, NUM_BLOCKS, num)


def test_value_and_replicates_against_decompositions_of_each_resample():
    states, blocks = drawn()
    row = module._of_layer(states, blocks)
    assert row["value"] == pytest.approx(rank_of(states), rel=1e-5)
    slow = np.array([rank_of(states, weights[blocks]) for weights in replicate_weights()[:60]])
    fast = np.array(row["replicates"][:60])
    assert np.corrcoef(slow, fast)[0, 1] > 0.98
    assert fast.std() == pytest.approx(slow.std(), rel=0.15)
    assert row["low"] < row["value"] < row["high"]


def test_no_rotation_shift_or_scale_changes_it():
    states, blocks = drawn()
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((6, 6)))[0]
    moved = (5 * (states @ turn) + np.arange(6)).astype(np.float32)
    assert module._of_layer(moved, blocks)["value"] == pytest.approx(
        module._of_layer(states, blocks)["value"], rel=1e-4
    )


def test_known_spreads():
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, NUM_BLOCKS, 20_000)
    round_ = rng.standard_normal((20_000, 5)).astype(np.float32)
    assert module._of_layer(round_, blocks)["value"] == pytest.approx(5, abs=0.01)
    assert module._of_layer(round_, blocks)["baseline"] == pytest.approx(5, abs=0.01)
    line = round_[:, :1] * np.arange(1, 6, dtype=np.float32)
    assert module._of_layer(line, blocks)["value"] == pytest.approx(1, abs=1e-4)
    same = np.full((50, 4), 0.3, dtype=np.float32)
    nothing = module._of_layer(same, blocks[:50])
    assert np.isnan(nothing["value"])
    assert np.isnan(nothing["low"])


@pytest.mark.parametrize("objective", ["causal-lm", "masked-lm", "translation"])
def test_of_a_model(matched_models, parallel_corpus, objective):
    model = matched_models[objective]
    table = measure(model, parallel_corpus, [EffectiveRank(200)])["effective_rank"]
    first = table[table["stack"] == table["stack"].iloc[0]]
    assert first["layer"].tolist() == list(range(len(model.anatomy.stacks[0].layers) + 1))
    assert (table["value"] >= 1).all()
    assert (table["value"] < table["baseline"]).all()


def test_one_state_has_no_spread():
    with pytest.raises(UserError, match="occurrences must be at least 2"):
        EffectiveRank(1)
