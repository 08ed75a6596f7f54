"""The figure of what objectives make of a sentence, and figures that stay folded."""

import re

import pytest
import small_run
from drawn import drawn_figures, drawn_section, objective_label

from infoflow.report import write_report

HOSTILE = "<img src=x onerror=alert(1)>"
LINES = {
    "masked-lm": {
        ("inputs", "tokens"): ("[CLS]", "the", "[MASK]", HOSTILE, "[SEP]"),
        ("targets", "masked-lm"): ("·", "·", "cat", "·", "·"),
    },
    "masked-lm-nsp": {
        ("inputs", "tokens"): ("[CLS]", "a", "[SEP]", "b", "[SEP]"),
        ("inputs", "segments"): ("A", "A", "A", "B", "B"),
        ("targets", "masked-lm"): ("·", "a", "·", "·", "·"),
        ("targets", "next-sentence"): ("B follows A",),
    },
    "skip-gram": {
        ("inputs", "tokens"): ("[CLS]", "a", "b", "[SEP]"),
        ("targets", "true"): tuple(f"(a, {number})" for number in range(70)),
    },
}


def examples():
    return [
        {**small_run.keys_of(objective), "part": part, "line": line, "place": place, "token": token}
        for objective, lines in LINES.items()
        for (part, line), tokens in lines.items()
        for place, token in enumerate(tokens)
    ]


def scores():
    asked = {"split": "test", "metric": "loss", "signature": ""}
    return [small_run.keys_of(name) | asked | small_run.estimate(4.0, 0.05, 5.0) for name in LINES]


def curves():
    return [
        small_run.keys_of(name) | {"step": n, "source_tokens": 9 * n, "value": 6.0 / n}
        for name in LINES
        for n in (1, 2)
    ]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    tables = {"objective_examples": examples(), "task_scores": scores(), "learning_curves": curves()}
    return small_run.write_run(tmp_path_factory.mktemp("examples"), **tables)


def cells_of(figure, objective):
    return next(row["cells"] for row in figure.payload["rows"] if row["label"] == objective_label(objective))


def test_rows_are_objectives_with_inputs_and_targets(run) -> None:
    figure = drawn_figures(run, "training")["objective-examples"]
    assert len(figure.payload["rows"]) == len(LINES)
    ((tokens,), (targets,)) = cells_of(figure, "masked-lm")
    assert tokens["columns"] == [(token,) for token in LINES["masked-lm"]["inputs", "tokens"]]
    assert targets["names"] == ["masked-lm"]
    assert "1 in masked LM" in figure.answer[0]
    assert len(figure.data) == sum(len(tokens) for lines in LINES.values() for tokens in lines.values())


def test_segments_stand_below_their_tokens(run) -> None:
    figure = drawn_figures(run, "training")["objective-examples"]
    ((pair,), targets) = cells_of(figure, "masked-lm-nsp")
    assert pair["names"] == ["tokens", "segments"]
    assert pair["columns"][3] == ("b", "B")
    assert [stack["names"] for stack in targets] == [["masked-lm"], ["next-sentence"]]


def test_long_lines_are_cut_and_counted(run) -> None:
    figure = drawn_figures(run, "training")["objective-examples"]
    (_, (pairs,)) = cells_of(figure, "skip-gram")
    assert (len(pairs["columns"]), pairs["more"]) == (60, 10)


def test_tokens_are_escaped_and_curves_are_folded(run) -> None:
    page = write_report(run).read_text(encoding="utf-8")
    assert HOSTILE not in page
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    inside = re.search(r'<details class="further">(.*?)</details>\s*</section>', page, re.DOTALL)
    assert inside is not None
    assert re.findall(r'<figure id="([\w-]+)"', inside[1]) == ["learning-curves"]
    assert inside[1].startswith("<summary>More figures: How did the loss fall?")


def test_a_section_folds_no_figure_that_it_has_alone(run, tmp_path) -> None:
    section = drawn_section(run, "training")
    assert [figure.id for figure in section.further] == ["learning-curves"]
    assert [*section.shown, *section.further] == sorted(section.figures, key=lambda figure: figure in section.further)
