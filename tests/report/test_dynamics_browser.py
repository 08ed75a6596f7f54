"""The histogram of single parameters' loss changes in headless Chromium."""

import itertools
import re

import pytest
from dynamics.synthetic import Recordings, write_run

pytest.importorskip("playwright", reason="playwright is not installed: pip install playwright")
pytestmark = [pytest.mark.browser, pytest.mark.slow]

PLACE = "#allocation-histogram"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    from infoflow.report import write_report

    return write_report(write_run(tmp_path_factory.mktemp("recorded"), Recordings()))


COLORS = {"helped": "--above", "zero": "--control", "hurt": "--below"}


def bars(page, side: str):
    """The bars of one side in the first panel."""
    panel = page.locator(f"{PLACE} .panel").first
    panel.scroll_into_view_if_needed()
    panel.locator(".live svg").wait_for()
    return panel.locator(f'.live svg .mark-rect path[fill="var({COLORS[side]})"]').all()


@pytest.mark.parametrize("width", [390, 1280])
def test_what_helped_lies_to_the_left_of_what_did_nothing_and_what_hurt_to_the_right(visit, recorded, width) -> None:
    page = visit(recorded, place=PLACE, width=width)
    helped, zero, hurt = ([bar.bounding_box() for bar in bars(page, side)] for side in COLORS)
    assert len(zero) == 1  # of W1
    assert len(helped) == len(hurt) > 30
    assert all(box["x"] + box["width"] <= zero[0]["x"] for box in helped)
    assert all(box["x"] >= zero[0]["x"] + zero[0]["width"] for box in hurt)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    shown = page.locator(f"{PLACE} .panel").first.locator(".live svg text")
    title = shown.filter(has_text="nats").bounding_box()
    assert title["x"] >= 0
    assert title["x"] + title["width"] <= width
    labels = shown.filter(has_text=re.compile("^(10⁻.*|0)$")).all()
    ticks = [label.bounding_box() for label in labels if label.get_attribute("opacity") != "0"]
    ticks.sort(key=lambda tick: tick["x"])
    assert len(ticks) >= 3
    assert all(one["x"] + one["width"] <= other["x"] for one, other in itertools.pairwise(ticks))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_rows_are_named_and_bars_have_colours_of_the_theme(visit, recorded, scheme) -> None:
    page = visit(recorded, place=PLACE, color_scheme=scheme)
    fills = {side: bars(page, side)[0].evaluate("bar => getComputedStyle(bar).fill") for side in COLORS}
    assert len(set(fills.values())) == 3
    assert not any(fill in ("none", "rgb(0, 0, 0)") for fill in fills.values())
    texts = page.locator(f"{PLACE} .panel").first.locator(".live svg text").all_text_contents()
    rows = ["query", "key", "value", "output", "W1", "W2", "norms"]
    assert sorted(text for text in texts if text in rows) == sorted(rows)
    assert "0" in texts
    assert sum(text.startswith("10⁻") for text in texts) >= 4
