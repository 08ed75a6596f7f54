"""The sentence above a figure's numbers: true for ties, one model and missing values; which figures still have none."""

import math
import re
from pathlib import Path

import pytest
import small_run
from drawn import drawn_figures

from infoflow.report import write_report

NO_WORDS = {"representations/token-map", "representations/position-map", "representations/tag-map"}
"""Figures of a study with every table that have no sentence above their numbers yet: the list may only shrink."""


def models_of(*numbers: tuple) -> list[tuple[dict, tuple]]:
    """Of each line of numbers that begins with a model's name, the model's keys and the rest."""
    return [(small_run.keys_of("masked-lm", model=name), rest) for name, *rest in numbers]


def words_of(path: Path, section: str, figure: str, **tables: list[dict]) -> str:
    """The sentence above the numbers of a figure of given models."""
    return drawn_figures(small_run.write_run(path, kind="analyze", **tables), section)[figure].words


def lens_rows(*numbers: tuple[str, float, float]) -> list[dict]:
    """Halfway up, each model has its number; below and above all are alike."""
    place = {"stack": "encoder", "lens": "logit", "positions": "predicted"}
    ends = {"kl": ((2.0, 0.1), (0.0, 0.0), 4.0), "agreement": ((0.3, 0.1), (1.0, 0.0), 0.1)}
    return [
        {**keys, **place, "layer": layer, "metric": metric, **small_run.estimate(*own, baseline=baseline)}
        for keys, number in models_of(*numbers)
        for metric, (bottom, top, baseline) in ends.items()
        for layer, own in enumerate((bottom, number, top))
    ]


LENS = "Halfway up, the share of positions at which the logit lens predicts the final top token is "
EXTREMES = [
    ((("A", math.nan, 0.1),), ""),
    ((("A", 0.5, 0.1),), "0.50 (0.40 to 0.60) in A"),
    ((("A", 0.5, math.nan),), "0.500 in A"),
    ((("A", 0.5, 0.1), ("B", 0.1, 0.1)), "highest in A, 0.50 (0.40 to 0.60); lowest in B, 0.10 (0.00 to 0.20)"),
    ((("A", 0.5, 0.2), ("B", 0.4, 0.2)), "0.50 (0.30 to 0.70) in A, with no clear difference from the others"),
    ((("A", 0.5, math.nan), ("B", 0.5, math.nan)), "0.500 in A, not clearly different from that in B"),
    (
        (("A", 0.5, 0.1), ("B", 0.45, 0.1), ("C", 0.1, 0.1), ("D", math.nan, 0.1)),
        "highest in A, 0.50 (0.40 to 0.60), not clearly different from that in B; lowest in C, 0.10 (0.00 to 0.20)",
    ),
    (
        tuple((name, 0.5, 0.1) for name in "ABCDE"),
        "0.50 (0.40 to 0.60) in A, not clearly different from 4 others (the largest of 5, so partly by chance)",
    ),
]


@pytest.mark.parametrize(("numbers", "told"), EXTREMES)
def test_extremes_are_told_apart_only_where_intervals_do_not_meet(tmp_path, numbers, told):
    words = words_of(tmp_path, "predicts", "lens-agreement", lens=lens_rows(*numbers))
    assert words == (f"{LENS}{told}." if told else "")


def score_rows(*numbers: tuple[str, float, float]) -> list[dict]:
    score = {"split": "test", "metric": "loss", "signature": ""}
    return [{**keys, **score, **small_run.estimate(*own, baseline=5.0)} for keys, own in models_of(*numbers)]


def test_the_unit_stands_behind_the_number(tmp_path):
    curves = [
        {**keys, "step": 10 * step, "source_tokens": 1000 * step, "value": 8.0 / step**power}
        for keys, (power,) in models_of(("A", 1), ("B", 2))
        for step in (1, 2, 4)
    ]
    scores = score_rows(("A", 4.0, 0.1), ("B", 4.0, 0.1))
    words = words_of(tmp_path, "training", "learning-curves", learning_curves=curves, task_scores=scores)
    assert words.startswith(
        "The fall of the training loss is largest in B, 7.50 nats per token; smallest in A, 6.00 nats per token; "
    )


SCORES = [
    ((("A", 4.0, 0.1),), "A is better than unigram frequencies, by 1.00 nats per token (0.90 to 1.10) of loss."),
    (
        (("A", 4.0, 0.1), ("B", 3.0, 0.1)),
        "A and B are all better than unigram frequencies, by at least 1.00 nats per token (0.90 to 1.10) of loss "
        "(least in A).",
    ),
    (
        (("A", 4.0, 0.1), ("B", 5.0, 0.1)),
        "A is better than unigram frequencies, by 1.00 nats per token (0.90 to 1.10) of loss; B is not clearly better "
        "than unigram frequencies.",
    ),
    ((("A", 5.5, 0.1), ("B", 5.0, 0.1)), "A and B are not clearly better than unigram frequencies."),
    (tuple((name, 5.5, 0.1) for name in "ABC"), "A, B and C are not clearly better than unigram frequencies."),
    ((("A", 4.0, math.nan),), "A is not clearly better than unigram frequencies."),
]


@pytest.mark.parametrize(("rows", "told"), SCORES)
def test_training_who_is_better_than_its_reference(tmp_path, rows, told):
    assert words_of(tmp_path, "training", "task-scores", task_scores=score_rows(*rows)) == told


def removal(**lines: tuple[float, ...]) -> list[dict]:
    """Losses after 0, 20, 40, ... % of the heads; a name is the model and the order."""
    place = {"kind": "all", "draw": 0, "mode": "zero", "metric": "loss"}
    return [
        {**keys, **place, "order": name.split("_")[1], "removed": 0.2 * step, "heads": step, **small_run.estimate(loss)}
        for name, losses in lines.items()
        for keys, _ in models_of((name.split("_")[0],))
        for step, loss in enumerate(losses)
    ]


def test_heads_how_many_can_go(tmp_path):
    def words(name, rows):
        return words_of(tmp_path / name, "heads", "heads-removed", head_pruning_curve=rows)

    curves = removal(
        A_importance=(1.0, 1.05, 1.09, 1.5), A_random=(1.0, 1.2, 1.3, 2.0), B_importance=(1.0, 1.0, 1.0, 1.2)
    )
    assert words("two", curves) == (
        "The share of heads that can be removed before the loss is 10% worse: 40% in A (in random order 0%) and B."
    )
    more = [*curves, *removal(C_importance=(1.0, 1.3, 1.0, 1.0))]
    assert words("three", more).endswith("10% worse: 40% in A (in random order 0%) and B; 0% in C.")
    assert words("random", removal(A_random=(1.0, 1.2))) == ""


def step_rows(*numbers: tuple[str, int, float, float], trained: bool = True) -> list[dict]:
    return [
        {**keys, "trained": trained, "stack": "encoder", "layer": layer, "next_layer": layer + 1, "width": 8,
         **small_run.estimate(*own)}
        for keys, (layer, *own) in models_of(*numbers)
    ]  # fmt: skip


def test_representations_the_largest_step(tmp_path):
    def words(name, *rows):
        return words_of(tmp_path / name, "changes", "layer-change", layer_distance=[row for own in rows for row in own])

    steps = ("A", 0, 0.3, 0.01), ("A", 1, 0.1, 0.01), ("B", 0, 0.2, 0.01), ("B", 1, 0.25, 0.01)
    before = step_rows(("A", 0, 0.02, 0.01), ("A", 1, 0.01, 0.01), trained=False)
    assert words("clear", step_rows(*steps), before) == (
        "The largest step (1 − PWCCA) is 0→1 in A, 0.300 (0.290 to 0.310); the largest step of an untrained model is "
        "0.020."
    )
    near = words("near", step_rows(("A", 0, 0.3, 0.1), ("A", 1, 0.25, 0.1)))
    assert near.endswith(", not clearly larger than another step of the same model.")
    unknown = step_rows(*((name, layer, math.nan, 0.01) for name, layer, *_ in steps))
    assert words("unknown", unknown, before) == ""


@pytest.mark.slow
def test_only_these_figures_have_no_words(whole_story):
    told = {section.name_of(figure.id): figure.words for section in whole_story.sections for figure in section.figures}
    assert {name for name, words in told.items() if not words} == NO_WORDS
    assert all(words.endswith(".") and words[:1] == words[:1].upper() for words in told.values() if words)
    assert not [words for words in told.values() if "nan" in words]


def test_names_in_words_are_escaped(tmp_path):
    """A model's name is anybody's text; the page escapes what a sentence says of it."""
    hostile = "<img src=x onerror=alert(1)>"
    curves = [row | {"model": hostile} for row in removal(A_importance=(1.0, 1.0))]
    run = small_run.write_run(tmp_path, kind="analyze", head_pruning_curve=curves)
    assert hostile in drawn_figures(run, "heads")["heads-removed"].words
    page = write_report(run).read_text(encoding="utf-8")
    (shown,) = re.findall('<p class="in-words">(.*?)</p>', page)
    assert "can be removed before the loss is 10% worse" in shown
    assert "&lt;img src=x" in shown
    assert "<img src=x" not in page
