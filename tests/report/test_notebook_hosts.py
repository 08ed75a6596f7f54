"""What objects show of themselves inside VS Code and Colab, as their frames allow it: drawn, and in their theme."""

import zlib

import pandas as pd
import pytest
from notebook_hosts import serving

pytest.importorskip("playwright", reason="playwright is not installed: pip install playwright")
pytestmark = [pytest.mark.browser, pytest.mark.slow]

COLOURS = {"light": "#ffffff", "dark": "#15181c"}
NAMES = ("figure", "map", "live", "table", "findings", "anatomy", "view")
LOCAL = ("http://127.0.0.1:", "http://localhost:", "data:", "blob:", "about:")
OUTPUT = {"vscode": ".output", "colab": "#output-area"}


@pytest.fixture(scope="module")
def outputs(study, matched_models):
    """HTML of every kind of output, by `NAMES`."""
    from infoflow import Run, plot, view

    layers = pd.DataFrame({"layer": [0, 1, 2], "value": [0.1, 0.2, 0.4]})
    figure, run, model = plot(layers), Run(study), matched_models["masked-lm"]
    told = [
        figure,
        plot(layers.assign(head=0)),
        figure.live(),
        run.tables["head_confidence"],
        run.findings,
        model.anatomy,
        view(model, "the old cat sees the dog"),
    ]
    return [one._repr_html_() for one in told]


@pytest.fixture(scope="module", params=["vscode-light", "vscode-dark", "colab-light", "colab-dark"])
def shown(request, browser, outputs):
    """The host's page, its theme, the frame of each output, and what was said and asked for meanwhile.

    The computer itself is light: Chromium's own default, since a theme that the test sets would hold for all frames.
    """
    host, theme = request.param.split("-")
    told: list[str] = []
    with serving(host, theme, outputs) as address:
        context = browser.new_context(viewport={"width": 900, "height": 6000}, color_scheme="null")
        page = context.new_page()
        page.on("console", lambda one: told.append(one.text) if one.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: told.append(str(error)))
        page.on("request", lambda one: told.append(one.url) if not one.url.startswith(LOCAL) else None)
        page.goto(address)
        if host == "vscode":
            inner = page.query_selector("iframe").content_frame()
            inner.wait_for_selector(f"{OUTPUT[host]}:nth-of-type({len(NAMES)})")
            parts = dict(zip(NAMES, inner.query_selector_all(OUTPUT[host]), strict=True))
        else:
            frames = [page.query_selector(f"#f{number}").content_frame() for number, _ in enumerate(NAMES)]
            areas = [frame.wait_for_selector(OUTPUT[host], state="attached") for frame in frames]
            parts = dict(zip(NAMES, areas, strict=True))
        yield page, theme, parts, told
        context.close()


def _corner(page, element) -> str:
    """The colour just inside the upper left corner of what is drawn there."""
    box = element.bounding_box()
    png = page.screenshot(clip={"x": int(box["x"]) + 3, "y": int(box["y"]) + 3, "width": 1, "height": 1})
    packed, place = b"", 8
    while place < len(png):
        size = int.from_bytes(png[place : place + 4])
        packed += png[place + 8 : place + 8 + size] if png[place + 4 : place + 8] == b"IDAT" else b""
        place += 12 + size
    return f"#{zlib.decompress(packed)[1:4].hex()}"  # behind a filter, which leaves the first pixel as it is


@pytest.mark.parametrize("name", ["figure", "map", "live", "view"])
def test_pictures_are_drawn_in_the_theme_of_the_notebook(shown, name):
    page, theme, parts, _ = shown
    image = parts[name].wait_for_selector("img")
    page.wait_for_timeout(300)
    assert image.evaluate("async (image) => { await image.decode(); return image.naturalWidth }") > 100
    if name != "live":  # the frame lies over the picture
        assert _corner(page, image) == COLOURS[theme]


@pytest.mark.parametrize("name", ["live", "view"])
def test_frames_run_and_follow_the_theme(shown, name):
    page, theme, parts, _ = shown
    frame = parts[name].wait_for_selector("iframe")
    frame.scroll_into_view_if_needed()
    inside = frame.content_frame()
    inside.wait_for_selector("svg, canvas", timeout=60_000)
    assert inside.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") == (theme == "dark")
    assert (int(_corner(page, frame)[1:3], 16) < 0x40) == (theme == "dark")


@pytest.mark.parametrize("name", NAMES)
def test_outputs_stay_within_the_page_and_have_a_height(shown, name):
    _, _, parts, _ = shown
    assert parts[name].evaluate("(area) => area.scrollWidth - area.clientWidth") <= 0
    assert parts[name].bounding_box()["height"] > 40


def test_tables_open_and_text_is_there(shown):
    _, _, parts, _ = shown
    assert parts["table"].query_selector_all("tbody tr")
    assert "claims were checked" in parts["findings"].inner_text()
    before = parts["anatomy"].bounding_box()["height"]
    parts["anatomy"].query_selector("summary").click()
    assert parts["anatomy"].bounding_box()["height"] > before


def test_nothing_is_asked_for_and_nothing_fails(shown):
    """Last: after everything was drawn and opened."""
    *_, told = shown
    assert told == []
