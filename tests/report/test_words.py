"""Static or contextual: which words are shown, what is told, and that text of the corpus stays text."""

import json

import numpy as np
import pytest
from drawn import tell
from synthetic_run import _write_plain, make_study

from infoflow.report import write_report

EVIL = "<script>alert('x')</script>&\"'"
WORDS = [f"word{number:02}" for number in range(20)]
MODELS = ("causal-lm", "masked-lm", "skip-gram")
LAYERS = range(1, 8)


def _row(keys, layer, word, occurrence, rank, near, **more):
    place = {"sentence": -1, "text": "", "begin": 0, "end": 0}
    here = {**place, **more} if occurrence >= 0 else place
    text = f"a {near} here"
    there = {"neighbour_sentence": 7, "neighbour_text": text, "neighbour_begin": 2, "neighbour_end": 2 + len(near)}
    return {
        **keys,
        "stack": "decoder" if keys["objective"] == "causal-lm" else "encoder",
        "layer": layer,
        "word": word,
        "disagreement": np.nan if layer == 0 else 0.1 + 0.04 * WORDS.index(word) if word in WORDS else 0.99,
        "baseline": np.nan if layer == 0 else 0.95,
        "occurrence": occurrence,
        "group": -1 if occurrence < 0 else occurrence % 2,
        **here,
        "rank": rank,
        "neighbour": near,
        "cosine": 0.9 - 0.1 * rank,
        **(there if occurrence >= 0 else {f"neighbour_{name}": value for name, value in place.items()}),
    }


def _rows(words):
    rows = []
    for objective in MODELS:
        for trained in (True, False):
            keys = {"model": f"{objective}/seed-1", "objective": objective, "seed": 1, "trained": trained}
            for word in words:
                rows += [_row(keys, 0, word, -1, rank, f"static{rank}") for rank in range(5)]
                for layer in LAYERS if objective != "skip-gram" else ():
                    for occurrence in range(4):
                        text = f"the {word} of {objective} {occurrence}"
                        place = {"sentence": occurrence, "text": text, "begin": 4, "end": 4 + len(word)}
                        rows += [
                            _row(keys, layer, word, occurrence, rank, f"near{rank}{EVIL}", **place) for rank in range(5)
                        ]
    return rows


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = make_study(tmp_path_factory.mktemp("words"), (1,), tables=("training_runs",))
    _write_plain(run, "word_neighbours", _rows([*WORDS, EVIL]))
    return run


@pytest.fixture(scope="module")
def figure(run):
    (section,) = [section for section in tell(run).sections if section.id == "words"]
    (figure,) = section.figures
    return figure


def test_words_come_by_how_far_their_occurrences_are_apart(figure) -> None:
    live = figure.payload["live"]
    assert live["words"] == [EVIL, *sorted(WORDS, reverse=True)][:16]
    assert figure.payload["still"]["word"] == EVIL
    assert "“word19”" in figure.answer[1]
    assert figure.answer[0].endswith("(different words: 0.95). For a static vector it is 0.")


def test_every_line_has_static_neighbours_and_those_with_layers_a_few_of_them(figure) -> None:
    live = figure.payload["live"]
    assert [line["label"] for line in live["lines"]] == ["causal LM", "masked LM", "skip-gram"]
    assert [line["layers"] for line in live["lines"]] == [[1, 3, 4, 5, 7], [1, 3, 4, 5, 7], []]
    assert live["first"] == 0
    for own in live["static"]:
        assert own == [[[f"static{rank}", round(0.9 - 0.1 * rank, 2)] for rank in range(5)]] * 16
    one = live["context"][1][-1][1]
    assert one["apart"] == pytest.approx(0.1 + 0.04 * 19, abs=0.005)
    assert [occurrence["group"] for occurrence in one["occurrences"]] == [0, 1, 0, 1]
    text, begin, end = one["occurrences"][2]["at"]
    assert live["texts"][text] == "the word19 of masked-lm 2"
    assert live["texts"][text][begin:end] == "word19"
    assert len(one["occurrences"][2]["near"]) == 3


def test_text_of_the_corpus_stays_text(run) -> None:
    html = write_report(run).read_text(encoding="utf-8")
    assert EVIL not in html
    assert "<mark>&lt;script&gt;alert" in html
    assert 'id="static-contextual"' in html


def test_the_chart_has_the_means_over_words_and_both_controls(figure) -> None:
    (panel,) = figure.panels
    spec = json.dumps(panel.spec)
    assert "different words" in spec
    assert '"untrained"' in spec
    values = [0.1 + 0.04 * number for number in range(20)] + [0.99]
    half = 1.96 * np.std(values, ddof=1) / len(values) ** 0.5
    form = panel.form.table
    own = form[(form["group"] == "trained") & (form["layer"] == 7) & (form["series"] == "masked-lm")].iloc[0]
    assert own["value"] == pytest.approx(np.mean(values))
    assert own["high"] - own["value"] == pytest.approx(half)


@pytest.mark.slow
@pytest.mark.browser
def test_a_reader_chooses_a_word_a_model_and_a_layer(run, visit) -> None:
    pytest.importorskip("playwright", reason="playwright is not installed: pip install playwright")
    box = visit(write_report(run)).locator("#static-contextual [data-words]")
    box.locator("[data-word]").select_option(label="word15")
    box.locator("[data-line]").select_option(label="masked LM")
    box.locator("input[data-layer]").fill("1")
    assert box.locator("output").text_content() == "3"
    assert box.locator("[data-of-line]").text_content() == "masked LM"
    assert {each.text_content() for each in box.locator("[data-of-word]").all()} == {"word15"}
    own = [each.text_content().strip() for each in box.locator(".own").all()]
    assert own == [f"{sign} the word15 of masked-lm {n}" for sign, n in (("●", 0), ("●", 2), ("◇", 1), ("◇", 3))]
    assert box.locator(".occurrences ul li").first.text_content().startswith(f"a near0{EVIL} here")
