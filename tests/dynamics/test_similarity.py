"""Similarity of share profiles, and whether labels of objectives mean anything."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from infoflow.dynamics import compare_corpora, compare_trainings, similarity
from infoflow.foundation import UserError

COMPONENTS = ("query", "key", "value", "output", "mlp_in", "mlp_out")


def groups(model: str, objective: str, seed: int, profile: np.ndarray, stack: str = "encoder") -> pd.DataFrame:
    """A table of two layers, with embeddings and cross-attention that must not matter."""
    rows = [
        {"component": name, "stack": stack, "layer": layer, "kind": "", "value": -profile[layer, index]}
        for layer in range(2)
        for index, name in enumerate(COMPONENTS)
    ]
    rows.append({"component": "embeddings", "stack": stack, "layer": -1, "kind": "", "value": -100.0})
    rows.append({"component": "query", "stack": stack, "layer": 0, "kind": "cross", "value": 50.0})
    frame = pd.DataFrame(rows).assign(
        model=model, objective=objective, seed=seed, set="train", term="loss", parameters=4
    )
    draws = np.random.default_rng(seed).normal(scale=0.01, size=(len(frame), 200))
    return frame.assign(replicates=[(value + row).tolist() for value, row in zip(frame["value"], draws, strict=True)])


@pytest.fixture
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    first, second = rng.random((2, 6)), rng.random((2, 6))
    parts = [
        groups("a/1", "a", 1, first),
        groups("a/2", "a", 2, first * 3),
        groups("b/1", "b", 1, second),
        groups("b/1", "b", 1, second[::-1], stack="decoder"),
    ]
    return pd.concat(parts, ignore_index=True)


def test_similarities_are_those_of_the_profiles(table) -> None:
    found = compare_trainings(table).set_index(["model_a", "stack_a", "model_b", "stack_b", "normalisation", "metric"])
    assert found.loc[("a/1", "encoder", "a/2", "encoder", "share", "spearman"), "value"] == pytest.approx(1.0)
    assert found.loc[("a/1", "encoder", "a/2", "encoder", "per_parameter", "cosine"), "value"] == pytest.approx(1.0)
    inside = table[(table["layer"] >= 0) & (table["kind"] == "")]
    profiles = {
        key: -rows.sort_values(["layer", "component"])["value"].to_numpy()
        for key, rows in inside.groupby(["model", "stack"])
    }
    expected = spearmanr(profiles["a/1", "encoder"], profiles["b/1", "decoder"]).statistic
    row = found.loc[("a/1", "encoder", "b/1", "decoder", "share", "spearman")]
    assert row["value"] == pytest.approx(expected)
    assert row["low"] <= row["value"] <= row["high"]
    assert row["count"] == 12
    assert row["baseline"] == 0.0
    assert not any(a == b for a, _, b, *_ in found.index)  # a model's own stacks are not compared


def test_corpora_are_compared_where_one_thing_changes(table) -> None:
    found = compare_corpora({"small": table, "large": table.assign(value=-table["value"])})
    keys = ["corpus", "model", "objective", "stack"]
    for row in found.to_dict("records"):
        one, other = ([row[f"{key}_{end}"] for key in keys] for end in "ab")
        assert (one[0] == other[0]) != (one[2:] == other[2:] and one[0] != other[0])
        assert one[:2] != other[:2]
    inside = found[found["corpus_a"] == found["corpus_b"]]
    alone = compare_trainings(table)
    pd.testing.assert_frame_equal(
        inside[inside["corpus_a"] == "small"].drop(columns=["corpus_a", "corpus_b"]).reset_index(drop=True), alone
    )
    across = found[(found["corpus_a"] != found["corpus_b"]) & (found["metric"] == "spearman")]
    own = across[across["model_a"] == across["model_b"]]
    assert len(own) == 2 * 4  # each stack with itself on the other corpus, in both normalisations
    with pytest.raises(UserError, match="at least two"):
        compare_corpora({"one": table})


def test_a_cosine_by_chance_is_the_mean_over_shuffles(table) -> None:
    found = compare_trainings(table)
    row = found[(found["model_a"] == "a/1") & (found["model_b"] == "b/1") & (found["metric"] == "cosine")].iloc[0]
    inside = table[(table["layer"] >= 0) & (table["kind"] == "")]
    one, other = (
        inside[(inside["model"] == m) & (inside["stack"] == "encoder")]["value"].to_numpy() for m in ("a/1", "b/1")
    )
    other = other if row["stack_b"] == "encoder" else other[::-1]
    rng = np.random.default_rng(1)
    shuffled = [float(similarity(one, rng.permutation(other), "cosine")) for _ in range(4000)]
    assert row["baseline"] == pytest.approx(np.mean(shuffled), abs=0.005)


def test_stacks_of_different_depth_are_not_compared(table) -> None:
    shallow = table[~((table["model"] == "b/1") & (table["layer"] == 1))]
    found = compare_trainings(shallow)
    assert set(zip(found["model_a"], found["model_b"], strict=True)) == {("a/1", "a/2")}
