"""Examples that changed sides, in the report."""

import adapted
import pandas as pd
import pytest
from drawn import drawn_figures
from findings.adapted_tables import HOSTILE, Adapted

from infoflow.report import write_report
from infoflow.results import UNTRAINED

pytestmark = pytest.mark.slow


def test_numbers_are_neither_right_nor_wrong(tmp_path) -> None:
    """Of a regression nothing is counted, not even where an older table says that some are right."""
    given = Adapted(seeds=(1,), objectives=("masked-lm",))
    answers = given.tables(["task_answers"])["task_answers"]
    run = adapted.write_run(tmp_path, given, only=("tuning_change",))
    adapted.write_table(run, "task_answers", answers)
    assert "tuned-flipped" in drawn_figures(run, "adaptation")
    adapted.write_table(run, "task_answers", answers.assign(shape="regression"))
    assert list(drawn_figures(run, "adaptation")) == ["tuning-change"]


@pytest.fixture
def run(tmp_path):
    """Of one masked language model, of one seed."""
    return adapted.write_run(tmp_path, Adapted(seeds=(1,), objectives=("masked-lm",)), only=("tuning_change",))


def answers(right, said=None, trained=True, wanted=("good", "good", "bad", "good"), **how) -> pd.DataFrame:
    """Rows of four examples, which are `right` or not."""
    given = Adapted(seeds=(1,), objectives=("masked-lm",)).tables(["task_answers"])["task_answers"]
    frame = given[given["method"] == "full"].assign(wanted=list(wanted), right=list(right), trained=trained, **how)
    frame = frame.assign(update=frame["update"] if trained else UNTRAINED)
    other = {"good": "bad", "bad": "good"}
    told = [one if is_right else other.get(one, "?") for one, is_right in zip(wanted, right, strict=True)]
    return frame.assign(said=said or told)


def figure_of(run, *parts):
    adapted.write_table(run, "task_answers", pd.concat(parts, ignore_index=True))
    return drawn_figures(run, "adaptation").get("tuned-flipped")


FULL = answers((True, True, False, True))
UNTUNED = answers((False, True, True, True), method="frozen")
SCRATCH = answers((True, False, False, False), trained=False)


def test_frozen_features_stand_beside_where_there_are_any(run) -> None:
    figure = figure_of(run, FULL, UNTUNED, SCRATCH)
    assert figure.payload["beside"] == "frozen said"
    assert figure.answer == [
        "Of 4 examples that both answered, tuning all weights got 1 right that frozen features got wrong, and 1 wrong "
        "that they got right (50% differ)."
    ]
    assert "a head on frozen features of the pretrained model." in figure.caption


def test_without_frozen_features_the_model_from_scratch_stands_beside(run) -> None:
    figure = figure_of(run, FULL, SCRATCH)
    assert figure.payload["beside"] == "from scratch said"
    assert [(row["gained"], row["beside"], row["tuned"]) for row in figure.payload["rows"]] == [
        (True, "bad", "good"),
        (True, "bad", "good"),
    ]
    assert figure.answer == [
        "Of 4 examples, the tuned model gets 2 right that the same model from random weights gets wrong, and 0 wrong "
        "that it gets right (50% differ)."
    ]
    assert "the same model tuned from random weights, since there are no frozen features." in figure.caption
    assert "said_untrained" in figure.data


@pytest.mark.parametrize("scratch", [True, False])
def test_text_cannot_break_out(run, scratch) -> None:
    wanted = (f"good{HOSTILE}", f"good{HOSTILE}", f"bad{HOSTILE}", f"good{HOSTILE}")
    said = [f"said{HOSTILE}"] * 4
    parts = [answers((True, True, True, False), said=said, wanted=wanted, text=f"Read{HOSTILE}")]
    parts += [SCRATCH.assign(said=said, wanted=list(wanted), text=f"Read{HOSTILE}")] if scratch else []
    figure = figure_of(run, *parts)
    assert figure.payload["beside"] == ("from scratch said" if scratch else "guess")
    page = write_report(run).read_text(encoding="utf-8")
    assert HOSTILE not in page
    for text in ("Read", "said", "bad"):
        assert f"{text}&lt;script&gt;alert(1)&lt;/script&gt;" in page
