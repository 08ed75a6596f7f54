"""What objects show of themselves inside VS Code and Colab, as their frames allow it: drawn, and in their theme."""

import zlib

import pandas as pd
import pytest
from notebook_hosts import ADDRESSES, served

pytest.importorskip("playwright", reason="playwright is not installed: pip install playwright")
pytestmark = [pytest.mark.browser, pytest.mark.slow]

COLOURS = {"light": "#ffffff", "dark": "#15181c"}
NAMES = ("figure", "map", "live", "table", "findings", "anatomy", "view")
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
    pages, told = served(host, theme, outputs), []
    context = browser.new_context(viewport={"width": 900, "height": 6000}, color_scheme="null")
    page = context.new_page()
    page.on("console", lambda message: told.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: told.append(str(error)))

    def answer(route):
        if route.request.url in pages:
            route.fulfill(body=pages[route.request.url], content_type="text/html; charset=utf-8")
        else:
            told.append(route.request.url)
            route.abort()

    context.route("http*://**", answer)
    page.goto(ADDRESSES[host])
    if host == "vscode":
        inner = page.query_selector("iframe").content_frame()
        inner.wait_for_selector(f"{OUTPUT[host]}:nth-of-type({len(NAMES)})")
        parts = {name: inner.query_selector_all(OUTPUT[host])[number] for number, name in enumerate(NAMES)}
    else:
        parts = {
            name: page.query_selector(f"#f{number}").content_frame().wait_for_selector(OUTPUT[host], state="attached")
            for number, name in enumerate(NAMES)
        }
    yield page, theme, parts, told
    context.close()


def _corner(page, element) -> str:
    """The colour just inside the upper left corner of what is drawn there."""
    box = element.bounding_box()
    png = page.screenshot(clip={"x": int(box["x"]) + 3, "y": int(box["y"]) + 3, "width": 1, "height": 1})
    start = png.index(b"IDAT")
    pixels = zlib.decompress(png[start + 4 : start + 4 + int.from_bytes(png[start - 4 : start])])
    return f"#{pixels[1:4].hex()}"  # behind the first row's filter, which changes nothing of its first pixel


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
    assert _corner(page, frame) in (COLOURS[theme], "#1a1e22") or theme == "light"


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
