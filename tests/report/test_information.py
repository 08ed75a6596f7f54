"""Figures of information about the input token: the entropy that layer 0 must have, and what clusters miss of it."""

import math
import re

import pytest
import small_run
from drawn import assert_explained, drawn_figures, tell

NAMES = {"masked-lm": "masked LM", "causal-lm": "causal LM"}
ENTROPY = 5.2


def rows(values, objective="causal-lm", trained=True, row=small_run.information, **keys):
    ends = {"half": 0.01, "baseline": 0.0}
    more = {"entropy": ENTROPY, "types": 1000, **keys}
    return [
        row(objective, layer, trained=trained, **small_run.estimate(value, **ends), **more)
        for layer, value in enumerate(values)
    ]


def usable(values, **keys):
    return [{name: value for name, value in row.items() if name != "clusters"} for row in rows(values, **keys)]


@pytest.fixture
def figures_of(tmp_path):
    def figures(**tables):
        return drawn_figures(small_run.write_run(tmp_path, **tables), "knows")

    return figures


FORGETS, RECOVERS = (5.2, 5.19, 5.15, 5.0), (3.7, 3.5, 3.6, 3.9)


def rules(figure):
    """Heights of lines across the picture, by their single number."""
    spec = figure.panels[0].spec
    found = []
    for layer in spec["layer"]:
        data = spec["datasets"][layer["data"]["name"]] if "data" in layer else []
        if layer["mark"]["type"] == "rule" and len(data) == 1 and set(data[0]) == {"value"}:
            found.append(data[0]["value"])
    return found


def sentences(figure):
    return re.split(r"(?<=[.;]) ", " ".join([*figure.answer, figure.words]))


def test_usable_information_is_the_first_figure_and_shows_the_entropy(figures_of):
    figures = figures_of(usable_information=usable(FORGETS), mutual_information=rows(RECOVERS))
    assert list(figures)[:2] == ["usable-input", "mi-input"]
    assert_explained([figures["usable-input"], figures["mi-input"]])
    for name in ("usable-input", "mi-input"):
        assert rules(figures[name]) == [pytest.approx(ENTROPY)]
    assert "5.20 nats, which layer 0 must have" in figures["usable-input"].caption
    assert "loses 0.200 nats of usable information" in figures["usable-input"].answer[0]


def test_the_ceiling_of_clusters_is_the_smaller_of_entropy_and_their_number(figures_of):
    many = figures_of(mutual_information=rows(RECOVERS))["mi-input"].caption
    assert "Ceiling: 5.20 nats, the smaller of the entropy" in many
    assert f"ln 500 = {math.log(500):.2f} nats" in many
    few = figures_of(mutual_information=rows((2.5, 2.4, 2.3, 2.2), clusters=20))["mi-input"].caption
    assert "Ceiling: 3.00 nats" in few
    assert "ln 20 = 3.00 nats" in few


@pytest.mark.parametrize("values", [RECOVERS, (3.7, 3.6, 3.5, 3.4), (5.1, 5.12, 5.15, 5.18)])
def test_clusters_that_miss_the_entropy_or_rise_from_layer_0_are_called_limited(figures_of, values):
    figure = figures_of(mutual_information=rows(values))["mi-input"]
    assert f"Limited by its clusters: layer 0 determines its token, but they show {values[0]:.2f} of 5.20" in (
        figure.caption
    )
    about = [one for one in sentences(figure) if "information" in one]
    assert about
    assert all("limited by its clusters" in one for one in about)


def test_clusters_that_see_the_entropy_are_not(figures_of):
    figure = figures_of(mutual_information=rows((5.15, 5.1, 5.0, 4.9)))["mi-input"]
    assert "imited by its clusters" not in " ".join([figure.caption, figure.words, *figure.answer])


def test_hidden_tokens_say_so_of_the_input_alone(figures_of):
    hidden = {"objective": "masked-lm", "regime": "training"}
    both = rows((3.0, 3.2, 3.4, 3.6), **hidden) + rows((0.1, 0.5, 1.0, 2.0), side="output", **hidden)
    figure = next(one for name, one in figures_of(mutual_information=both).items() if name.startswith("mi-training"))
    told = " ".join([figure.words, *figure.answer])
    assert "about the input token (limited by its clusters)" in figure.words
    assert "about the input token (limited by its clusters)" in " ".join(figure.answer)
    assert "output token (limited" not in told


def test_the_plane_is_that_of_usable_information_where_it_was_measured(figures_of):
    both = [*rows(FORGETS), *rows((0.5, 0.8, 1.2, 1.5), side="output")]
    plain = figures_of(mutual_information=both)["mi-plane"]
    assert plain.caption.startswith("Information in clusters.")
    other = [*usable(FORGETS), *usable((0.2, 0.3, 0.9, 1.1), side="output")]
    plane = figures_of(mutual_information=both, usable_information=other)["mi-plane"]
    assert plane.caption.startswith("Usable information.")
    assert plane.data["output"].tolist() == pytest.approx([0.2, 0.3, 0.9, 1.1])


def test_an_entropy_far_away_is_named_at_the_edge(figures_of):
    figure = figures_of(mutual_information=rows((0.72, 0.7, 0.65, 0.6), clusters=20))["mi-input"]
    assert len(rules(figure)) == 0
    spec = figure.panels[0].spec
    texts = [row.get("text", "") for data in spec["datasets"].values() for row in data]
    assert "↑ entropy H(T): 5.2 (off scale)" in texts


def test_the_front_page_takes_usable_information(tmp_path):
    def replicated(own):
        return [{**one, "replicates": [one["value"] + 0.001 * (at % 5 - 2) for at in range(200)]} for one in own]

    tables = {"mutual_information": replicated(rows(RECOVERS)), "usable_information": replicated(usable(FORGETS))}
    story = tell(small_run.write_run(tmp_path, **tables))
    assert story.screen is not None
    assert [card.figure for card in story.screen.cards if card.figure in ("mi-input", "usable-input")] == [
        "usable-input"
    ]
