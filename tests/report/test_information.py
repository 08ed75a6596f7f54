"""Figures of information about the input token: the entropy that layer 0 must have, and what clusters miss of it."""

import math

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


def rules(panel):
    """Heights of lines across the picture, by their single number."""
    found = []
    for layer in panel.spec["layer"]:
        data = panel.spec["datasets"][layer["data"]["name"]] if "data" in layer else []
        if layer["mark"]["type"] == "rule" and len(data) == 1 and set(data[0]) == {"value"}:
            found.append(data[0]["value"])
    return found


def test_both_estimates_stand_side_by_side_under_the_entropy(figures_of):
    figures = figures_of(usable_information=usable(FORGETS), mutual_information=rows(RECOVERS))
    assert next(iter(figures)) == "mi-input"
    figure = figures["mi-input"]
    assert_explained([figure])
    assert [panel.title for panel in figure.panels] == ["usable information", "estimate limited by its clusters"]
    assert figure.tables == ("usable_information", "mutual_information")
    for panel in figure.panels:
        assert rules(panel) == [pytest.approx(ENTROPY)]
    usably, by_clusters = figure.answer
    assert usably.startswith("Usable information: from layer 0 to layer 3, causal LM falls by 0.200 nats")
    assert by_clusters.startswith("Estimate limited by its clusters: from layer 0 to layer 3, causal LM rises by 0.200")


def test_further_estimates_are_panels_of_the_input_token_alone(figures_of):
    sides = {kind: [*kind(FORGETS), *kind((0.2, 0.3, 0.9, 1.1), side="output")] for kind in (rows, usable)}
    plain = {"usable_information": sides[usable], "mutual_information": [*rows(RECOVERS), *sides[rows][4:]]}
    before = figures_of(**plain)
    further = {"mutual_information_without_position": sides[rows], "usable_information_mlp": sides[usable]}
    figures = figures_of(**plain, **further)
    assert [panel.title for panel in figures["mi-input"].panels] == [
        "usable information",
        "estimate limited by its clusters",
        "estimate by clusters without position",
        "usable by a hidden layer",
    ]
    assert figures["mi-input"].tables == (*plain, *further)
    assert "the mean vector at each position is subtracted first" in figures["mi-input"].caption
    shortfall = before["mi-input"].caption.partition("Limited")[2].partition(".")[0]
    assert shortfall in figures["mi-input"].caption
    assert len(figures["mi-output"].panels) == 2
    assert figures["mi-plane"].caption == before["mi-plane"].caption
    assert set(figures) == set(before)


def test_usable_information_alone_has_its_figure(figures_of):
    figures = figures_of(usable_information=usable(FORGETS))
    assert list(figures) == ["mi-input"]
    assert [panel.title for panel in figures["mi-input"].panels] == ["usable information"]


def test_output_and_hidden_tokens_have_both_estimates(figures_of):
    hidden = {"objective": "masked-lm", "regime": "training"}

    def sides(of, source, target):
        plain = [*of(source), *of(target, side="output")]
        return [*plain, *of(source, **hidden), *of(target, side="output", **hidden)]

    figures = figures_of(
        usable_information=sides(usable, FORGETS, (0.2, 0.3, 3.0, 5.16)),
        mutual_information=sides(rows, RECOVERS, (0.1, 0.5, 1.0, 5.0)),
    )
    training = next(figure for name, figure in figures.items() if name.startswith("mi-training"))
    for figure in (figures["mi-output"], training):
        assert [panel.title for panel in figure.panels] == ["usable information", "estimate limited by its clusters"]
        assert figure.tables == ("usable_information", "mutual_information")
        assert_explained([figure], not_surprising=[training.id])
    assert training.answer[-1].startswith("From layer 3 on")


def test_the_ceiling_of_clusters_is_the_smaller_of_entropy_and_their_number(figures_of):
    many = figures_of(mutual_information=rows(RECOVERS))["mi-input"].caption
    assert "Ceiling of the cluster estimate: 5.20 nats, the smaller of the entropy" in many
    assert f"ln 500 for 500 clusters ({math.log(500):.2f} nats)" in many
    few = figures_of(mutual_information=rows((2.5, 2.4, 2.3, 2.2), clusters=20))["mi-input"].caption
    assert "Ceiling of the cluster estimate: 3.00 nats" in few
    assert "ln 20 for 20 clusters (3.00 nats)" in few


@pytest.mark.parametrize("values", [RECOVERS, (3.7, 3.6, 3.5, 3.4), (5.1, 5.12, 5.15, 5.18)])
def test_clusters_that_miss_the_entropy_or_rise_from_layer_0_are_called_limited(figures_of, values):
    figure = figures_of(mutual_information=rows(values))["mi-input"]
    assert (
        "Limited by its clusters: layer 0 determines its token, but the cluster estimate finds only "
        f"{values[0]:.2f} of 5.20"
    ) in figure.caption
    assert figure.panels[0].title == "estimate limited by its clusters"
    assert all("limited by its clusters" in one for one in (figure.words, *figure.answer))


def test_clusters_that_see_the_entropy_are_not(figures_of):
    figure = figures_of(mutual_information=rows((5.15, 5.1, 5.0, 4.9)))["mi-input"]
    assert "imited by its clusters" not in " ".join([figure.caption, figure.words, *figure.answer])


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
    assert len(rules(figure.panels[0])) == 0
    spec = figure.panels[0].spec
    texts = [row.get("text", "") for data in spec["datasets"].values() for row in data]
    assert "↑ entropy H(T): 5.2 (off scale)" in texts


def test_the_front_page_takes_usable_information(tmp_path):
    def replicated(own):
        return [{**one, "replicates": [one["value"] + 0.001 * (at % 5 - 2) for at in range(200)]} for one in own]

    tables = {"mutual_information": replicated(rows(RECOVERS)), "usable_information": replicated(usable(FORGETS))}
    story = tell(small_run.write_run(tmp_path, **tables))
    assert story.screen is not None
    (card,) = (card for card in story.screen.cards if card.figure == "mi-input")
    assert "of usable information" in card.sentence
