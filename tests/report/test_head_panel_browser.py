"""The panel of a head, with everything that is known of it, in headless Chromium."""

import csv
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="playwright is not installed: pip install playwright")
pytestmark = [pytest.mark.browser, pytest.mark.slow]
GRID = "table[data-grid='bert-tiny/encoder/self']"


@pytest.fixture(scope="module")
def full_report(tmp_path_factory):
    from synthetic_run import add_head_tables, make_analysis

    from infoflow.report import write_report

    run = make_analysis(tmp_path_factory.mktemp("heads"), tables=("head_confidence", "head_entropy"))
    add_head_tables(run, model="bert-tiny")
    return write_report(run)


def test_a_head_opens_by_click_and_shows_what_is_known_of_it(visit, full_report):
    page = visit(full_report)
    page.locator(f"{GRID} button[data-layer='0'][data-head='5']").click()
    text = page.locator(".head-panel").inner_text()
    assert "nsubj, dependent→head" in text
    assert "Roles: nsubj dependent→head" in text
    names = ("confidence", "best relation", "induction", "relevance (voita)", "importance", "loss without the head")
    for label in names:
        assert label in text
    page.locator(".head-panel svg.lines .token").first.wait_for()
    assert page.locator(".head-panel .attention-map").count() == 2
    assert page.locator(".head-panel [data-sentence]").first.inner_text().startswith("a <script>alert(1)</script> c")
    path = page.locator(".head-panel svg.lines path").evaluate_all(
        "all => all.map(one => one.getAttribute('d')).join('')"
    )
    assert path.count("M") == 5


def test_a_head_opens_by_keyboard_and_its_sentences_too(visit, full_report):
    page = visit(full_report)
    page.locator(f"{GRID} button[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.locator(".head-panel svg.lines .token").first.wait_for()
    page.locator(".head-panel [data-sentence][aria-checked=true]").focus()
    page.keyboard.press("ArrowDown")
    page.locator(".head-panel svg.lines .token[aria-label='query 5 of 7: שלום']").wait_for()
    assert "sentence=12" in page.evaluate("location.hash")
    assert page.evaluate("document.activeElement.dataset.sentence") == "12"
    page.locator(".head-panel .token[data-side='0'][data-index='1']").focus()
    told = page.locator(".head-panel [role=status]").inner_text().replace("\u2068", "").replace("\u2069", "")
    assert told == "“d” sees “[CLS]” 100%"


@pytest.mark.parametrize("width", [390, 1280])
def test_an_open_panel_never_scrolls_the_page_sideways(visit, full_report, width):
    page = visit(full_report, "#head-map;head=bert-tiny/encoder/self/2/3", width=width)
    page.locator(".head-panel svg.lines .token").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_panel_s_table_stays_in_its_card(visit, full_report):
    """However long a label is: it wraps, and what is still too wide scrolls inside the card."""
    page = visit(full_report, "#head-map;head=bert-tiny/encoder/self/2/3")
    page.locator(".head-panel svg.lines .token").first.wait_for()
    page.evaluate(
        "document.querySelector('.head-panel tbody tr').firstElementChild.textContent = 'very long label '.repeat(30)"
    )
    assert (
        page.evaluate(
            "(({scrollWidth, clientWidth}) => scrollWidth - clientWidth)(document.querySelector('.head-panel'))"
        )
        <= 1
    )
    assert page.evaluate("getComputedStyle(document.querySelector('.head-panel')).overflowX") == "auto"


def test_signed_statistics_have_a_scale_around_zero(visit, full_report):
    page = visit(full_report)
    page.get_by_role("radio", name="loss without the head").click()
    scale = page.locator("#head-map .scale").inner_text()
    assert "−" in scale
    assert "+" in scale
    assert page.locator(f"{GRID}.signed").count() == 1
    page.get_by_role("radio", name="best relation").click()
    assert "lead over the control" in page.locator("#head-map .scale").inner_text()


def test_the_map_s_data_are_a_file(visit, full_report):
    page = visit(full_report)
    with page.expect_download() as download:
        page.locator("[data-csv]").click()
    with Path(download.value.path()).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["statistic"] for row in rows} >= {"confidence", "best relation", "loss without the head"}
    (row,) = [row for row in rows if (row["statistic"], row["layer"], row["head"]) == ("best relation", "0", "5")]
    assert row["note"] == "nsubj, dependent→head"
    assert float(row["value"]) == pytest.approx(0.6, abs=0.01)
