"""What tells how well a reader will answer: rank correlations against loops, on courses whose answer is known."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from infoflow.evidence import RETRIEVAL_COURSE, later_answers
from infoflow.foundation import UserError
from infoflow.results import estimate

UPDATES, DRAWS = (0, 10, 20, 30, 40), 50


def course_of(numbers: dict[str, dict[str, list[float]]], noise: float = 0.0) -> pd.DataFrame:
    """Rows from {model: {metric: values by update}}; p1 is of facts held out, the rest of trained ones."""
    rng = np.random.default_rng(0)
    rows = []
    for model, metrics in numbers.items():
        for metric, values in metrics.items():
            for update, value in zip(UPDATES, values, strict=True):
                draws = value + noise * rng.standard_normal(DRAWS)
                facts = "held out" if metric == "p1" else "trained"
                own = estimate(value, draws, 0.0, 64)
                rows.append({"model": model, "update": update, "facts": facts, "metric": metric, **own})
    return pd.DataFrame(rows)


RISING, FALLING = [0.0, 1.0, 2.0, 3.0, 4.0], [0.0, -1.0, -2.0, -3.0, -4.0]
WAVE = [0.2, 0.1, 0.5, 0.3, 0.9]


def test_it_is_the_rank_correlation_with_the_next_kept_update() -> None:
    course = course_of({
        "a": {"utility": [0.0, 0.3, 0.2, 0.8, 0.9], "log_likelihood": [-3, -1, -2, -2.5, -1.5], "p1": WAVE},
        "b": {"utility": [0.1, 0.1, 0.4, 0.6, 0.5], "log_likelihood": [-3, -3, -1, -0.5, -0.2], "p1": RISING},
    })  # fmt: skip
    found = later_answers(course).set_index("metric")
    for name, predictor in (("later_by_utility", "utility"), ("later_by_likelihood", "log_likelihood")):
        before, after = [], []
        for _, own in course.groupby("model"):
            told = own[own["metric"] == predictor].sort_values("update")["value"].tolist()
            right = own[own["metric"] == "p1"].sort_values("update")["value"].tolist()
            before += told[:-1]
            after += right[1:]
        assert found.loc[name, "value"] == pytest.approx(spearmanr(before, after).statistic)
        assert found.loc[name, "count"] == len(before) == 8
        assert (found.loc[name, "queries"], found.loc[name, "system"], found.loc[name, "k"]) == ("held out", "own", 0)


def test_what_rises_with_the_answers_tells_them_and_what_falls_tells_the_opposite() -> None:
    found = later_answers(course_of({"a": {"utility": RISING, "log_likelihood": FALLING, "p1": RISING}}))
    assert found.set_index("metric")["value"].to_dict() == {"later_by_utility": 1.0, "later_by_likelihood": -1.0}
    assert (found["baseline"].abs() < 0.15).all()  # one training in random order: 0 in the mean


def test_the_control_keeps_what_sets_trainings_apart() -> None:
    low, high = [0.0, 0.1, 0.2, 0.3, 0.4], [5.0, 5.1, 5.2, 5.3, 5.4]
    course = course_of(
        {name: {"utility": one, "log_likelihood": one, "p1": one} for name, one in (("a", low), ("b", high))}
    )
    assert (later_answers(course)["baseline"] > 0.6).all()


def test_replicates_are_those_of_the_numbers() -> None:
    course = course_of({"a": {"utility": RISING, "log_likelihood": WAVE, "p1": WAVE}}, noise=0.3)
    row = later_answers(course).set_index("metric").loc["later_by_likelihood"]
    draws = {
        metric: np.stack(own.sort_values("update")["replicates"].tolist()) for metric, own in course.groupby("metric")
    }
    wanted = [spearmanr(draws["log_likelihood"][:-1, r], draws["p1"][1:, r]).statistic for r in range(DRAWS)]
    assert np.asarray(row["replicates"], dtype=float) == pytest.approx(wanted, abs=1e-6)
    assert -1 <= row["low"] <= row["high"] <= 1


def test_a_reader_without_passages_has_no_utility_and_no_say() -> None:
    numbers = {"a": {"utility": RISING, "log_likelihood": WAVE, "p1": WAVE}}
    other = {"closed": {"log_likelihood": FALLING, "p1": RISING}}
    assert later_answers(course_of({**numbers, **other}))["value"].tolist() == later_answers(course_of(numbers))[
        "value"
    ].tolist()  # fmt: skip


def test_too_few_updates_or_a_number_that_never_changes_say_nothing() -> None:
    course = course_of({"a": {"utility": [1.0] * 5, "log_likelihood": RISING, "p1": WAVE}})
    assert later_answers(course)["metric"].tolist() == ["later_by_likelihood"]
    assert later_answers(course[course["update"] < 30]).empty
    assert later_answers(course[course["metric"] == "p1"]).empty


def test_two_rows_about_one_number_are_told() -> None:
    course = course_of({"a": {"utility": RISING, "log_likelihood": RISING, "p1": WAVE}})
    with pytest.raises(UserError, match="Got duplicates"):
        later_answers(pd.concat([course, course]))


def test_the_table_says_what_it_holds() -> None:
    course = course_of({"a": {"utility": RISING, "log_likelihood": WAVE, "p1": WAVE}})
    assert len(RETRIEVAL_COURSE.conform(course.drop(columns="model"))) == 15
