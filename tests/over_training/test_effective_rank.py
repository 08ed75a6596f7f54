"""The effective rank of states against a decomposition of each resample, and what it must not depend on."""

import numpy as np
import pytest

from infoflow.flow import NO_LABEL, Occurrences, SampleFacts, TokenSample, measure
from infoflow.foundation import UserError, block_of, replicate_weights
from infoflow.over_training import EffectiveRank


def rank_of(states, weights=None) -> float:
    """By the eigenvalues of numpy's weighted covariance."""
    shares = np.linalg.eigvalsh(np.cov(states.T, aweights=weights, bias=True)).clip(0)
    shares = shares[shares > 0] / shares.sum()
    return float(np.exp(-sum(share * np.log(share) for share in shares)))


def drawn(num=4000, width=6, seed=0):
    rng = np.random.default_rng(seed)
    scales = np.geomspace(1, 0.05, width)
    states = rng.standard_normal((num, width)) * scales @ np.linalg.qr(rng.standard_normal((width, width)))[0] + 3
    return states.astype(np.float32)


def row_of(states):
    """The row of one layer; ten tokens to a sentence."""
    number = np.arange(len(states))
    columns = dict.fromkeys(Occurrences.__dataclass_fields__, 0 * number)
    columns |= {"sentence": number // 10, "row": number // 10, "label": 0 * number + NO_LABEL}
    facts = SampleFacts(
        model="model", stack="encoder", regime="clean", task="masked-lm", seed=0, tokenizer="words",
        frequencies=np.ones(1, dtype=np.int64), ranks=np.ones(1, dtype=np.int64),
    )  # fmt: skip
    table = EffectiveRank(len(states)).compute(TokenSample(Occurrences(**columns), states[None], facts))
    return table.to_dict("records")[0]


def test_value_and_replicates_against_decompositions_of_each_resample():
    states = drawn()
    row = row_of(states)
    assert row["value"] == pytest.approx(rank_of(states), rel=1e-5)
    slow = np.array(
        [rank_of(states, weights[block_of(np.arange(len(states)) // 10)]) for weights in replicate_weights()[:60]]
    )
    fast = np.array(row["replicates"][:60])
    assert np.corrcoef(slow, fast)[0, 1] > 0.98
    assert fast.std() == pytest.approx(slow.std(), rel=0.15)
    assert row["low"] < row["value"] < row["high"]


def test_no_rotation_shift_or_scale_changes_it():
    states = drawn()
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((6, 6)))[0]
    moved = (5 * (states @ turn) + np.arange(6)).astype(np.float32)
    assert row_of(moved)["value"] == pytest.approx(row_of(states)["value"], rel=1e-4)


def test_known_spreads():
    rng = np.random.default_rng(0)
    round_ = rng.standard_normal((20_000, 5)).astype(np.float32)
    assert row_of(round_)["value"] == pytest.approx(5, abs=0.01)
    assert row_of(round_)["baseline"] == pytest.approx(5, abs=0.01)
    line = round_[:, :1] * np.arange(1, 6, dtype=np.float32)
    assert row_of(line)["value"] == pytest.approx(1, abs=1e-4)
    same = np.full((50, 4), 0.3, dtype=np.float32)
    nothing = row_of(same)
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
