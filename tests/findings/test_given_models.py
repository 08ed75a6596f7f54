"""Claims on models that were given: which are judged, on which rows, and what a reader is told. INVENTED numbers."""

import numpy as np
import pandas as pd
import pytest

from infoflow.findings import FINDINGS, evaluate

from .probed_tables import Probed

pytestmark = pytest.mark.slow

ASKED = [f"probing:{name}" for name in ("T-1", "T-2", "T-3", "M-1", "M-2", "M-3", "M-5", "M-6", "P-1", "P-2", "P-3",
                                        "P-4")]  # fmt: skip


def given(model="MiniLM", task="encoder", architecture="bert", source="masked-lm", loss=None, tables=None):
    """The tables of a probe of one model: those of one invented masked LM, with the names of a given model."""
    found = {}
    for name, frame in (tables or Probed(seeds=(0,)).tables()).items():
        if name == "task_scores":
            continue
        own = frame[frame["objective"] == source]
        found[name] = own.assign(model=model, objective=task, architecture=architecture)
    scores = {"model": model, "objective": task, "variant": "", "architecture": architecture, "start": "", "seed": 0}
    value, low, high = (np.nan,) * 3 if loss is None else (loss, loss - 0.1, loss + 0.1)
    scores |= {"metric": "loss", "value": value, "low": low, "high": high, "baseline": 6.0, "count": 900}
    twins = [{"update": -1, "trained": True}, {"update": 0, "trained": False, "value": 9.0, "low": 8.9, "high": 9.1}]
    return found | {"given_scores": pd.DataFrame([scores | twin for twin in twins])}


def agreement(model="MiniLM", task="encoder", curve=(0.4, 0.5, 0.6, 0.7, 0.65), permuted=0.0):
    """The table of correlations with people."""
    rows = []
    for labels, values in (("human", curve), ("permuted", [permuted] * len(curve))):
        for trained in (True, False):
            for layer, value in enumerate(values):
                value = value if trained else 0.3
                draw = np.random.default_rng([layer, len(labels)]).standard_normal(40)
                replicates = list(value + 0.002 * draw)
                rows.append({"model": model, "objective": task, "variant": "", "architecture": "bert", "start": "",
                             "seed": 0, "update": -1 if trained else 0, "trained": trained, "layer": layer,
                             "score": "f", "labels": labels, "value": value, "baseline": 0.0,
                             "replicates": replicates})  # fmt: skip
    return pd.DataFrame(rows)


def judged(tables, names):
    return evaluate(tables, [FINDINGS[name] for name in names])


@pytest.mark.parametrize("task", ["encoder", "causal-lm"])
def test_claims_on_each_model_by_itself_are_judged_as_in_a_study(task):
    found = judged(given(task=task), ASKED)
    study = judged(Probed(seeds=(0,)).tables(), ASKED)
    assert list(found["id"]) == ASKED
    assert list(found["verdict"]) == list(study["verdict"])
    assert (found["verdict"] == "holds").sum() >= len(ASKED) - 1  # orders of layers are noisy with one seed
    assert set(found["model"]) == {"MiniLM"}
    assert set(found["seeds"]) == {1}
    assert found["note"].str.startswith("judged on MiniLM, an external model").all()
    assert found["note"].str.contains("the claim is about a masked LM; MiniLM is ").any()


def test_numbers_are_those_of_a_study_of_the_same_tables():
    study = judged(Probed(seeds=(0,)).tables(), ASKED).set_index("id")
    own = judged(given(), ASKED).set_index("id")
    same = [name for name in ASKED if name != "probing:P-3"]  # in a study of three objectives
    pd.testing.assert_frame_equal(own.loc[same, ["effect", "low", "high"]], study.loc[same, ["effect", "low", "high"]])


def test_what_compares_objectives_stays_untestable():
    row = judged(given(), ["probing:P-6"]).iloc[0]
    assert row["verdict"] == "not testable here"
    assert row["model"] == ""


def test_a_model_that_predicts_no_better_than_frequencies_is_none_to_judge_on():
    row = judged(given(task="causal-lm", loss=5.5), ["probing:P-1"]).iloc[0]
    assert row["verdict"] == "not testable here"
    assert "MiniLM has not learned its task: 5.5 nats per token" in row["reason"]
    assert judged(given(task="causal-lm", loss=4.0), ["probing:P-1"]).iloc[0]["verdict"] == "holds"


def test_a_model_without_a_head_is_taken_as_it_is_and_that_is_told():
    assert "no output head" in judged(given(), ["probing:P-1"]).iloc[0]["note"]
    assert "no output head" not in judged(given(task="causal-lm", loss=3.0), ["probing:P-1"]).iloc[0]["note"]


def test_each_of_two_models_has_its_row_whatever_their_architecture():
    one, other = given("one"), given("two", tables=_swapped())
    tables = {name: pd.concat([one[name], other[name]], ignore_index=True) for name in one}
    found = judged(tables, ["probing:P-1", "probing:P-6"])
    assert list(found["model"]) == ["one", "two", ""]
    alone = [judged(each, ["probing:P-1"]).iloc[0] for each in (one, other)]
    assert list(found["effect"][:2]) == [row["effect"] for row in alone]
    assert alone[0]["effect"] != alone[1]["effect"]


def _swapped():
    probed = Probed(seeds=(0,))
    probed.scores["upos", "linear", "selectivity"] = ((0.1, 0.2, 0.2, 0.2, 0.2), (0.1,) * 5)
    return probed.tables()


def test_without_a_control_there_is_no_verdict():
    tables = {name: frame[frame["trained"]] for name, frame in given().items()}
    row = judged(tables, ["probing:P-1"]).iloc[0]
    assert (row["verdict"], row["reason"]) == ("not testable here", "No control was measured.")


@pytest.mark.parametrize(
    ("how", "verdict"),
    [
        ({}, "holds"),
        ({"curve": (0.4, 0.5, 0.6, 0.65, 0.7)}, "fails"),
        ({"curve": (0.4, 0.5, 0.6)}, "not testable here"),  # too shallow
        ({"task": "causal-lm"}, "not testable here"),  # the claim is about encoders
    ],
)
def test_where_agreement_with_people_peaks(how, verdict):
    tables = given(task=how.get("task", "encoder")) | {"bert_score": agreement(**how)}
    row = judged(tables, ["probing:P-5"]).iloc[0]
    assert row["verdict"] == verdict, (row["reason"], row["note"])
    if verdict == "holds":
        assert row["effect"] == pytest.approx(0.05)
        assert row["control_name"] == "permuted human scores"


def test_agreement_that_permuted_scores_show_too_is_none():
    frame = agreement()
    shown = frame[frame["labels"] == "human"].assign(labels="permuted")
    frame = pd.concat([frame[frame["labels"] == "human"], shown])
    row = judged(given() | {"bert_score": frame}, ["probing:P-5"]).iloc[0]
    assert row["verdict"] == "undetermined"


def test_a_study_is_judged_as_ever():
    tables = Probed().tables()
    rows = judged(tables, ASKED)
    assert set(rows["model"]) == {""}
    damaged = judged(tables | {"given_scores": pd.DataFrame({"model": ["x"]})}, ASKED)
    pd.testing.assert_frame_equal(rows, damaged)
