"""The sentence above a figure's numbers: true for ties, one model and missing values; which figures still have none."""

import math

import pandas as pd
import pytest

NO_WORDS = {
    "representations/token-map", "representations/position-map", "representations/tag-map",
    "probing/overview", "probing/accuracy", "probing/selectivity", "probing/examples", "probing/single-examples",
    "probing/codelength", "probing/probe-size", "probing/depth", "probing/trees", "probing/minimal-pairs",
    "alignment/scores", "alignment/layers", "alignment/translation",
    "pruning/quality", "pruning/kinds", "pruning/functions", "pruning/from-scratch", "pruning/gates",
    "dynamics/components", "dynamics/loss", "dynamics/heads", "dynamics/hurting", "dynamics/parameters",
    "dynamics/objectives",
}  # fmt: skip
"""Figures of a study with every table that have no sentence above their numbers yet: the list may only shrink."""


def estimate(value: float, half: float = math.nan):
    from drawn import Estimate

    return Estimate(value=value, low=value - half, high=value + half, seeds=1, count=9)


def candidates(*numbers: tuple[str, float, float]):
    from infoflow.report._in_words import Candidate

    return [Candidate(f"in {name}", estimate(value, half)) for name, value, half in numbers]


EXTREMES = [
    ((), ""),
    ((("A", math.nan, 0.1),), ""),
    ((("A", 0.5, 0.1),), "0.50 nats (0.40 to 0.60) in A"),
    ((("A", 0.5, math.nan),), "0.500 nats in A"),
    (
        (("A", 0.5, 0.1), ("B", 0.1, 0.1)),
        "highest in A, 0.50 nats (0.40 to 0.60); lowest in B, 0.10 nats (0.00 to 0.20)",
    ),
    ((("A", 0.5, 0.2), ("B", 0.4, 0.2)), "0.50 nats (0.30 to 0.70) in A, and not clearly another elsewhere"),
    ((("A", 0.5, math.nan), ("B", 0.5, math.nan)), "0.500 nats in A, not clearly apart from that in B"),
    (
        (("A", 0.5, 0.1), ("B", 0.45, 0.1), ("C", 0.1, 0.1), ("D", math.nan, 0.1)),
        "highest in A, 0.50 nats (0.40 to 0.60), not clearly apart from that in B; "
        "lowest in C, 0.10 nats (0.00 to 0.20)",
    ),
]


@pytest.mark.parametrize(("numbers", "told"), EXTREMES)
def test_extremes_are_told_apart_only_where_intervals_do_not_meet(numbers, told):
    from infoflow.report._in_words import both_extremes

    assert both_extremes(candidates(*numbers), "nats") == told


def test_many_that_are_alike_are_counted():
    from infoflow.report._in_words import extreme

    top = extreme(candidates(*((name, 0.5, 0.1) for name in "ABCDE")))
    assert top is not None
    assert top.candidate.name == "in A"
    assert top.told() == "0.50 (0.40 to 0.60) in A, not clearly apart from 4 others"
    least = extreme(candidates(("A", -1.0, 0.1), ("B", -2.0, 0.1)), least=True)
    assert least is not None
    assert (least.candidate.name, least.alike) == ("in B", ())


def cast_of(*labels: str):
    from drawn import Series, ShownModels

    series = tuple(Series(key=label, label=label, slot=slot) for slot, label in enumerate(labels))
    return ShownModels(series=series, by="model", main_stacks={})


def scores(*rows: tuple[str, float, float]) -> pd.DataFrame:
    return pd.DataFrame(
        {"label": label, "group": "trained", "value": value, "low": value - half, "high": value + half, "baseline": 5.0}
        for label, value, half in rows
    )


SCORES = [
    ((("A", 4.0, 0.1),), "A is better than unigram frequencies, by 1.00 nats per token (0.90 to 1.10) of loss."),
    (
        (("A", 4.0, 0.1), ("B", 3.0, 0.1)),
        "A and B are all better than unigram frequencies, by 1.00 nats per token (0.90 to 1.10) of loss or more "
        "(least in A).",
    ),
    (
        (("A", 4.0, 0.1), ("B", 5.0, 0.1)),
        "A is better than unigram frequencies, by 1.00 nats per token (0.90 to 1.10) of loss; B is not clearly better "
        "than unigram frequencies.",
    ),
    ((("A", 5.5, 0.1), ("B", 5.0, 0.1)), "A and B are not clearly better than unigram frequencies."),
    ((("A", 4.0, math.nan),), "A is not clearly better than unigram frequencies."),
]


@pytest.mark.parametrize(("rows", "told"), SCORES)
def test_training_who_is_better_than_its_reference(rows, told):
    from infoflow.report.training._training import _score_words

    assert _score_words(scores(*rows), "loss") == told


def removal(**lines: tuple[float, ...]) -> pd.DataFrame:
    """Losses after 0, 20, 40, ... % of the heads; a name is the model and the order."""
    rows = []
    for name, losses in lines.items():
        series, order = name.split("_")
        rows += [
            {"series": series, "kind": "all", "order": order, "removed": 0.2 * step, "value": loss}
            for step, loss in enumerate(losses)
        ]
    return pd.DataFrame(rows)


def test_heads_how_many_can_go():
    from infoflow.report.heads._removed import _words

    models = cast_of("A", "B", "C")
    curves = removal(
        A_importance=(1.0, 1.05, 1.09, 1.5), A_random=(1.0, 1.2, 1.3, 2.0), B_importance=(1.0, 1.0, 1.0, 1.2)
    )
    assert _words(curves, models, "loss") == (
        "Of all heads, 40% in A (in random order 0%) and B can go before the loss is 10% worse."
    )
    more = pd.concat([curves, removal(C_importance=(1.0, 1.3, 1.0, 1.0))])
    assert _words(more, models, "loss").startswith("Of all heads, 40% in A (in random order 0%) and B; 0% in C can go")
    assert _words(removal(A_random=(1.0, 1.2)), models, "loss") == ""


def test_representations_the_largest_step():
    from infoflow.report.knows._change import _step_words

    def row(series: str, layer: int, value: float, half: float, trained: bool = True) -> dict:
        return {"series": series, "layer": layer, "seed": 0, "value": value, "low": value - half, "high": value + half,
                "trained": trained, "count": 9}  # fmt: skip

    frame = pd.DataFrame(
        [row("A", 0, 0.3, 0.01), row("A", 1, 0.1, 0.01), row("B", 0, 0.2, 0.01), row("B", 1, 0.25, 0.01)]
    )
    table = pd.DataFrame({"group": ["trained", "untrained"], "value": [0.3, 0.02]})
    series = list(cast_of("A", "B").series)
    assert _step_words(frame, series, table) == (
        "The largest step is 0.300 (0.290 to 0.310) (1 − PWCCA), 0→1 in A; the largest of an untrained model is 0.020."
    )
    near = pd.DataFrame([row("A", 0, 0.3, 0.1), row("A", 1, 0.25, 0.1)])
    assert "0→1 in A, not clearly more than another step of its own." in _step_words(near, series[:1], table.head(1))
    assert _step_words(frame.assign(value=math.nan), series, table) == ""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    import whole_study

    return whole_study.make(tmp_path_factory.mktemp("whole"))


def test_only_these_figures_have_no_words(whole):
    from drawn import SECTIONS, ModelTables

    tables = ModelTables.of(whole)
    sections = [section for _, build in SECTIONS if (section := build(tables)) is not None]
    told = {section.name_of(figure.id): figure.words for section in sections for figure in section.figures}
    assert {name for name, words in told.items() if not words} == NO_WORDS
    assert all(words.endswith(".") and words[:1] == words[:1].upper() for words in told.values() if words)
    assert not [words for words in told.values() if "nan" in words]


def test_names_in_words_are_escaped():
    """A model's name is anybody's text; the page escapes what a sentence says of it."""
    from infoflow.report._page import _named
    from infoflow.report._story import Story
    from infoflow.report.heads._removed import _words

    hostile = "<img src=x onerror=alert(1)>"
    models = cast_of(hostile)
    words = _words(removal(A_importance=(1.0, 1.0)).assign(series=hostile), models, "loss")
    assert hostile in words
    story = object.__new__(Story)  # of which only the names are asked
    object.__setattr__(story, "models", models)
    shown = str(_named(words, story))
    assert "<img" not in shown
    assert "&lt;img" in shown
