"""What neighbours share, and maps: figures, page, slider."""

import base64
import gzip
import io
import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from synthetic_run import write_again

from infoflow.report import write_figures, write_report

pytestmark = pytest.mark.slow

SEEDS = (1, 2)
OBJECTIVES = ("causal-lm", "masked-lm", "translation")
LAYERS = range(7)
EVIL = "<script>alert('x')</script>&\"'"


def _models(seeds, trained=(True, False)):
    for objective in OBJECTIVES:
        for seed in seeds:
            for state in trained:
                keys = {"model": f"{objective}/seed-{seed}", "objective": objective, "seed": seed, "trained": state}
                yield keys | {"stack": "decoder" if objective == "causal-lm" else "encoder"}


def _shares(low, high, baseline, keys, seeds):
    """Rising curves of the trained, flat ones of the untrained."""
    rng = np.random.default_rng(0)
    rows = []
    for model in _models(seeds):
        for key in keys:
            for layer in LAYERS:
                at = low + (high - low) * (layer / 6 if model["trained"] else 0) + rng.normal(0, 0.002)
                at *= 1 + 0.1 * OBJECTIVES.index(model["objective"])
                replicates = at + rng.normal(0, 0.003, 50)
                estimate = {"value": at, "low": at - 0.006, "high": at + 0.006, "baseline": baseline, "count": 22_409}
                more = {"pools": 50, "neighbours": 50, "metric": "cosine", "few": "require"}
                rows.append({**model, "layer": layer, **key, **estimate, **more, "replicates": list(replicates)})
    return rows


def _map_rows(seeds, evil=False):
    rng = np.random.default_rng(1)
    rows = []
    for model in _models(seeds):
        for kind, tokens, tags in (
            ("token", ["is", "are", "was", EVIL if evil else "were"], [""]),
            ("position", ["it"], [""]),
            ("tag", ["is"], ["VERB", "AUX", EVIL if evil else "X", "A", "B", "C", ""]),
        ):
            for point in range(260):
                start, step = rng.normal(size=2), rng.normal(size=2) / 8
                masked = kind == "token" and model["objective"] == "masked-lm" and point % 8 == 0
                facts = {"token": tokens[point % len(tokens)], "tag": tags[point % len(tags)], "masked": masked}
                facts |= {"sentence": point, "position": point % 11, "perplexity": 30.0}
                for layer in LAYERS:
                    x, y = start + layer * step
                    rows.append({**model, "layer": layer, "map": kind, "point": point, "x": x, "y": y, **facts})
    return rows


def make_run(folder, seeds=SEEDS, evil=False, tags=("upos", "ccg_left", "ccg", "ccg_right")):
    from synthetic_run import _write, _write_plain, make_study

    run = make_study(folder, seeds, tables=("training_runs",))
    _write(run, "position_neighbours", "tokens", _shares(0.3, 1.4, 2.6, [{}], seeds))
    _write(run, "context_neighbours", "fraction", _shares(0.1, 0.3, 0.08, [{"side": "left"}, {"side": "right"}], seeds))
    keys = [{"tag": tag, "subword": "first"} for tag in tags]
    _write(run, "tag_neighbours", "fraction", _shares(0.4, 0.6, 0.3, keys, seeds))
    _write_plain(run, "token_map", _map_rows(seeds[:1], evil))
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("neighbours"))


@pytest.fixture(scope="module")
def figures(run):
    from drawn import tell

    section = next(section for section in tell(run).sections if section.id == "neighbours")
    return {figure.id: figure for figure in section.figures}


@pytest.fixture(scope="module")
def report(run):
    return write_report(run)


@pytest.fixture(scope="module")
def html(report):
    return report.read_text(encoding="utf-8")


class _Svg(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.paths = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag == "path":
            self.paths.append(dict(attrs))


def test_a_figure_for_each_thing_shared(figures):
    assert list(figures) == [
        "position-neighbours",
        "context-neighbours",
        "tag-neighbours",
        "map-token",
        "map-position",
        "map-tag",
    ]
    for figure in figures.values():
        assert figure.question.endswith("?")
        assert all(re.search(r"\d", sentence) for sentence in figure.answer)
        assert re.search(r"\d", figure.caption)


def test_position_is_drawn_upside_down(figures):
    spec = figures["position-neighbours"].panels[0].spec
    scales = [layer["encoding"]["y"]["scale"] for layer in spec["layer"] if "scale" in layer["encoding"].get("y", {})]
    assert scales
    assert all(scale["reverse"] for scale in scales)
    assert "↓ any two: 2.6 (off scale)" in json.dumps(spec, ensure_ascii=False)
    assert "axis inverted" in json.dumps(spec)


@pytest.mark.parametrize(("figure", "panels"), [("context-neighbours", 2), ("tag-neighbours", 4)])
def test_panels_that_are_compared_share_a_scale(figures, figure, panels):
    specs = [panel.spec for panel in figures[figure].panels]
    assert len(specs) == panels
    y_axes = [layer["encoding"]["y"] for spec in specs for layer in spec["layer"] if "y" in layer["encoding"]]
    domains = {json.dumps(y["scale"]["domain"]) for y in y_axes if "scale" in y}
    assert len(domains) == 1
    assert all('"color": "var(--control)"' in json.dumps(spec) for spec in specs)


def test_categories_come_before_other_tags(figures):
    titles = [panel.title for panel in figures["tag-neighbours"].panels]
    assert titles == ["CCG category", "its part to the left (past)", "its part to the right (future)", "part of speech"]


def test_the_answer_names_side_and_amount(figures):
    answer = " ".join(figures["context-neighbours"].answer)
    assert "The token before: from layer 0 to layer 6, the share in causal LM rises by 0.2" in answer
    assert "The token after: " in answer
    answer = " ".join(figures["position-neighbours"].answer)
    assert "At the top layer the mean distance in position between neighbours is, in tokens: translation" in answer


def test_maps_show_one_seed_of_each_and_one_control(figures):
    labels = [space.label for space in figures["map-token"].payload["spaces"]]
    assert labels == ["causal LM", "masked LM", "translation", "untrained control"]


def test_the_row_of_layers_has_every_drawn_dot(figures):
    payload = figures["map-token"].payload
    for strip, space in zip(payload["strips"], payload["spaces"], strict=True):
        assert len(space.group) == 200
        cells = str(strip).split("<g ")[1:]
        assert len(cells) == 7
        for index, cell in enumerate(cells):
            dots = [p for p in _Svg("<g " + cell).paths if p["stroke"] != "var(--paper)"]
            drawn = sorted(tuple(map(int, m)) for p in dots for m in re.findall(r"M(\d+) (\d+)h0", p["d"]))
            expected = sorted(map(tuple, (100 * space.places[index]).round().astype(int).tolist()))
            assert drawn == expected


def test_hidden_ones_are_rings(figures):
    payload = figures["map-token"].payload
    rings = [sum('stroke="var(--paper)"' in part for part in str(strip).split("<path")) for strip in payload["strips"]]
    assert [count > 0 for count in rings] == [False, True, False, False]
    assert [len(space["hollow"]) > 0 for space in payload["live"]["spaces"]] == [False, True, False, False]


def test_the_sentence_counts_near_dots(figures, run):
    """Against a loop over dots, of the causal LM's first and last layer."""
    frame = run.tables["token_map"]
    own = frame[(frame["map"] == "position") & (frame["objective"] == "causal-lm") & frame["trained"]]
    expected = []
    for layer in (0, 6):
        rows = own[own["layer"] == layer].sort_values("point").reset_index()
        gaps = []
        for i, row in rows.iterrows():
            distance = (rows["x"] - row["x"]) ** 2 + (rows["y"] - row["y"]) ** 2
            near = distance.drop(i).sort_values().index[:10]
            gaps.append((rows["position"][near] - row["position"]).abs().mean())
        expected.append(np.mean(gaps))
    text = figures["map-position"].answer[0]
    assert f"causal LM, {expected[0]:.1f} and {expected[1]:.1f} tokens away" in text


def test_rare_tags_become_others(figures):
    groups = figures["map-tag"].payload["groups"]
    assert len(groups) == 6
    assert groups[-1].label == "others"


def test_data_follow_the_drawn_points_through_the_layers(figures, html):
    link = re.search(r'download="map-token.csv.gz" href="data:application/gzip;base64,([^"]+)"', html)
    read = pd.read_csv(io.StringIO(gzip.decompress(base64.b64decode(link[1])).decode()))
    assert len(read) == 4 * 200
    assert {f"{axis}_{layer}" for axis in "xy" for layer in LAYERS} < set(read.columns)
    assert len(figures["map-token"].data) == len(read)


def test_the_page_stays_small(html):
    assert len(html.encode()) < 5_000_000
    maps = re.findall(r'<div class="maps".*?</script>', html, re.DOTALL)
    assert len(maps) == 3
    assert max(map(len, maps)) < 200_000


def test_tokens_and_tags_are_escaped(tmp_path):
    html = write_report(make_run(tmp_path, seeds=(1,), evil=True)).read_text(encoding="utf-8")
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html


def test_only_what_was_measured(tmp_path, run):
    from drawn import tell
    from synthetic_run import make_analysis

    bare = make_analysis(tmp_path / "bare", tables=())
    assert "neighbours" not in [section.id for section in tell(bare).sections]
    stored = run.tables.stored("position_neighbours")
    model = stored.frame[stored.frame["model"] == "masked-lm/seed-1"].assign(model="bert-tiny")
    write_again(bare, model[model["trained"]], stored.schema)
    section = next(section for section in tell(bare).sections if section.id == "neighbours")
    assert [figure.id for figure in section.figures] == ["position-neighbours"]


def test_maps_are_exported(run, tmp_path):
    paths = {path.name: path for path in write_figures(run, tmp_path, ("svg",))}
    text = paths["map-token.svg"].read_text()
    assert "var(--" not in text
    assert text.count("layer 6") == 4
    assert "masked LM" in text


# ---- in a browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture
def page(report):
    pytest.importorskip("playwright", reason="playwright is not installed: pip install playwright")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    problems = []
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=CHROMIUM, args=["--headless=new", "--no-sandbox"]) as chromium,
    ):
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(report.as_uri() + "#map-token;layer=2")
        yield page
    assert problems == []


def _first_dot(page):
    return page.locator("#map-token .stage").first.locator("path").first.evaluate("dot => dot.style.transform")


@pytest.mark.browser
def test_the_slider_moves_the_dots_and_the_address_keeps_it(page):
    at_two = _first_dot(page)
    assert page.locator("#map-token output").inner_text() == "2"
    assert page.locator("#map-token .stage").first.locator("path").count() == 200
    page.locator("#map-token input[type=range]").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#map-token output").inner_text() == "3"
    assert page.locator("#map-position output").text_content() == "3"
    assert _first_dot(page) != at_two
    assert "layer=3" in page.evaluate("location.hash")
    page.locator("#map-token .strip g[data-layer='2']").first.click()
    assert _first_dot(page) == at_two
    assert page.locator("#map-token .strip g.now text").first.text_content() == "2"
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
