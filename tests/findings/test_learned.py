"""Which models have learned their task: fixed criteria on task scores."""

import pandas as pd
import pytest

from infoflow.findings import Finding, Table, evaluate, exceeds
from infoflow.results import Spec


def scores(objective="causal-lm", **metrics):
    """One test row per metric: (value, low, high, baseline)."""
    rows = []
    for metric, (value, low, high, baseline) in metrics.items():
        keys = {"objective": objective, "seed": 1, "trained": True, "split": "test", "metric": metric}
        rows.append(keys | {"value": value, "low": low, "high": high, "baseline": baseline})
    return {"task_scores": pd.DataFrame(rows)}


def why(tables, objective="causal-lm"):
    """Why a claim about that objective's models is not tested; None: it is."""
    numbers = pd.DataFrame({"objective": objective, "seed": 1, "trained": True, "layer": range(3), "value": 1.0})
    finding = Finding(
        id="own:1", claim="A number is above 0.", source="none", published="none", statistic="the number",
        reads={"number": Table("numbers", Spec(objective)).by("layer")},
        test=lambda curves: [exceeds("number", curves["number"][:, :1], 0.0, "nats")],
        controls=(), uncontrolled="nothing", learned=(Spec(objective),), minimum_seeds=1,
    )  # fmt: skip
    replicated = numbers.assign(replicates=[[0.9, 1.1]] * 3)
    row = evaluate(tables | {"numbers": replicated}, [finding]).iloc[0]
    return row["reason"] if row["verdict"] == "not testable here" else None


@pytest.mark.parametrize(("high", "learned"), [(4.49, True), (4.51, False), (float("nan"), False)])
def test_loss_must_lie_a_tenth_below_the_unigram_loss(high, learned):
    reason = why(scores(loss=(4.4, 4.3, high, 5.0)))
    assert (reason is None) == learned


def test_reason_names_the_model_and_its_numbers():
    reason = why(scores(loss=(4.9, 4.8, 5.0, 5.0)))
    assert reason == (
        "The model causal-lm/seed-1 has not learned its task: 4.9 (4.8 to 5) nats per token of loss, needed below 4.5."
    )


@pytest.mark.parametrize(("low", "learned"), [(11.6, True), (11.4, False)])
def test_translation_must_beat_copying_by_ten_points(low, learned):
    tables = scores("translation", loss=(2.0, 1.9, 2.1, 6.0), bleu=(13.0, low, 15.0, 1.5))
    reason = why(tables, "translation")
    assert (reason is None) == learned
    if not learned:
        assert reason == (
            "The model translation/seed-1 has not learned its task: BLEU 13 (11.4 to 15), needed above 11.5."
        )


def test_unknown_scores_are_not_taken_for_learning():
    assert why({}) == (
        "Whether the model causal-lm/seed-1 has learned its task is not known: the table task_scores is absent."
    )
    tables = scores("translation", loss=(2.0, 1.9, 2.1, 6.0))
    assert "task_scores has no bleu" in why(tables, "translation")
    untrained = {"task_scores": tables["task_scores"].assign(trained=False)}
    assert "task_scores has no loss" in why(untrained, "translation")


def test_test_split_counts_where_there_is_one():
    good, bad = scores(loss=(3, 2.9, 3.1, 5.0))["task_scores"], scores(loss=(5, 4.9, 5.1, 5.0))["task_scores"]
    assert why({"task_scores": pd.concat([bad.assign(split="validation"), good])}) is None
    assert why({"task_scores": pd.concat([good.assign(split="validation"), bad])}) is not None
    assert why({"task_scores": good.assign(split="validation")}) is None
