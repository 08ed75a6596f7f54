"""The report in headless Chromium: opened from disk, as a reader does."""

import os
import re
from pathlib import Path

import pytest
from support.chromium import unfold

pytest.importorskip("playwright", reason="playwright is not installed: pip install playwright")
pytestmark = [pytest.mark.browser, pytest.mark.slow]


def _scroll_through(page):
    """Bring every chart to the screen and wait for it (page.wait_for_function would need what the policy forbids)."""
    unfold(page)
    for panel in page.locator(".panel").all():
        panel.scroll_into_view_if_needed()
        panel.locator(".live svg").wait_for()


def _comes_true(page, holds, seconds=30):
    """Whether it holds after a while: a busy machine draws slowly."""
    for _ in range(4 * seconds):
        page.wait_for_timeout(250)
        if holds():
            return True
    return False


def _below_the_bar(place):
    """Within 60 px of it."""
    return 40 <= place.evaluate("place => place.getBoundingClientRect().top") <= 118


def test_opens_within_two_seconds(visit):
    finished = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
    milliseconds = [visit().evaluate(finished)]
    while min(milliseconds) >= 2000 and len(milliseconds) < 4:
        milliseconds.append(visit().evaluate(finished))
    if min(milliseconds) >= 2000 and os.getloadavg()[0] > 1.5 * (os.cpu_count() or 1):
        pytest.skip("the machine is busy with other work: its load is more than 1.5 per core")
    assert 0 < min(milliseconds) < 2000


def test_every_chart_comes_alive_when_scrolled_to(visit, story):
    page = visit()
    _scroll_through(page)
    charts = sum(len(figure.panels) for figure in story.figures if figure.id != "head-map")
    assert page.locator(".panel.alive .live svg").count() == charts
    for chart in page.locator(".panel.alive .live svg").all():
        box = chart.bounding_box()
        assert box
        assert box["width"] > 150
        assert box["height"] > 50
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


@pytest.mark.parametrize(("width", "by_link"), [(390, True), (1280, False)])
def test_a_jump_lands_on_its_heading(visit, story, width, by_link):
    """Though the charts that it passes are drawn, and grow, only then."""
    name = [section.figures[-1].id for section in story.sections if section.figures][-2]
    page = visit(place="" if by_link else f"#{name}", width=width)
    if by_link:
        page.evaluate(f"location.hash = '#{name}'")
    page.wait_for_timeout(2500)  # a page that has landed must stay there
    place, end = page.locator(f"#{name}"), "document.documentElement.scrollHeight - innerHeight - scrollY"
    assert _comes_true(page, lambda: _below_the_bar(place) or page.evaluate(end) < 2), name


def test_on_a_phone_room_for_charts_is_kept_before_they_are_drawn_and_nothing_scrolls_sideways(visit):
    page = visit(width=390)
    unfold(page)
    before = page.evaluate("document.documentElement.scrollHeight")
    _scroll_through(page)
    after = page.evaluate("document.documentElement.scrollHeight")
    charts = page.locator(".panel").count()
    assert abs(after - before) < 20 * charts
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_dark_and_light_follow_the_system_and_the_button(visit):
    page = visit(color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    assert sum(map(int, re.findall(r"\d+", dark))) < 3 * 60
    page.locator("#theme").click()
    assert page.evaluate(background) == "rgb(255, 255, 255)"
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_the_keyboard_reaches_a_head_and_opens_it(visit):
    page = visit()
    grid = page.locator("table.heads").first
    grid.locator("button[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    focused = page.evaluate("[document.activeElement.dataset.layer, document.activeElement.dataset.head]")
    assert focused == ["4", "1"]
    page.keyboard.press("Enter")
    panel = page.locator(".head-panel")
    assert panel.is_visible()
    assert "layer 4, head 1" in panel.inner_text()
    assert page.evaluate("document.activeElement.className").startswith("head-panel")
    page.keyboard.press("Escape")
    assert not panel.is_visible()
    assert page.evaluate("document.activeElement.dataset.layer") == "4"


def test_a_head_s_panel_shows_the_numbers_of_its_table(visit, study):
    page = visit()
    page.locator("table[data-grid='masked-lm/encoder/self'] button[data-layer='3'][data-head='1']").click()
    text = page.locator(".head-panel").inner_text()
    table = study.tables["head_confidence"]
    row = table[
        (table["model"] == "masked-lm/seed-1") & table["trained"] & (table["layer"] == 3) & (table["head"] == 1)
    ]
    row = row[row["kind"] == "self"].iloc[0]
    shown = re.search(r"confidence\s+([\d.]+) \(([\d.]+) to ([\d.]+)\)\s+([\d.]+)", text)
    assert shown, text
    numbers = [float(number) for number in shown.groups()]
    assert numbers == pytest.approx([row["value"], row["low"], row["high"], row["baseline"]], abs=0.005)


def test_choosing_a_statistic_repaints_the_map_and_its_sentence(visit):
    page = visit()
    cell = page.locator("table.heads button").first
    before = cell.get_attribute("aria-label")
    page.get_by_role("radio", name="entropy").click()
    assert "entropy" in cell.get_attribute("aria-label")
    assert before != cell.get_attribute("aria-label")
    assert "Mean entropy over heads" in page.locator("#head-map .answer").inner_text()
    page.get_by_role("radio", name="change by training").click()
    assert "trained minus untrained" in page.locator("#head-map .scale").inner_text()


def test_the_address_keeps_the_view(visit):
    page = visit()
    page.get_by_role("radio", name="entropy").click()
    page.locator("[data-seed]").select_option("2")
    page.locator("table[data-grid='masked-lm/encoder/self'] button[data-layer='3'][data-head='1']").click()
    address = page.evaluate("location.hash")
    again = visit(place=address)
    assert again.get_by_role("radio", name="entropy").get_attribute("aria-checked") == "true"
    assert again.locator("[data-seed]").input_value() == "2"
    assert "seed 2" in again.locator(".head-panel").inner_text()


@pytest.mark.parametrize(
    "address", ["#nowhere;head=a/b/c/9/9;statistic=none;seed=x", "#%E0%A4%A", "#;;;=", "#head-map"]
)
def test_a_strange_address_does_no_harm(visit, address):
    page = visit(place=address)
    assert page.locator("table.heads").first.is_visible()
    assert not page.locator(".head-panel").is_visible()


def test_a_claim_that_is_folded_away_opens_when_a_link_leads_to_it(visit, story):
    from playwright.sync_api import expect

    folded = next(finding.id for finding in story.findings if finding.verdict == "not testable here")
    page = visit()
    row = page.locator(f"[id='{folded}']")
    assert not row.is_visible()
    page.evaluate(f"location.hash = '{folded}'")
    expect(row).to_be_in_viewport()
    expect(visit(place=f"#{folded};seed=1").locator(f"[id='{folded}']")).to_be_in_viewport()


def test_a_chosen_model_is_lit_in_every_figure_of_its_section(visit):
    page = visit(place="#knows")
    page.mouse.wheel(0, 200)  # a reader's scroll ends the jump
    page.locator("#identity").scroll_into_view_if_needed()
    page.locator("#identity .panel.alive").wait_for()
    key = page.locator("#knows .key[data-series='masked-lm']")
    key.click()
    assert key.get_attribute("aria-pressed") == "true"
    for figure in ("#mi-input", "#identity"):
        page.locator(f"{figure} .live path[opacity='0.12']").first.wait_for(state="attached")
    assert "model=masked-lm" in page.evaluate("location.hash")


def test_a_hovered_head_marks_its_layer_and_place_in_every_map_of_the_section(visit):
    page = visit()
    first = page.locator("table.heads").first
    first.locator('button[data-layer="1"][data-head="2"]').hover()
    marked = page.locator("table.heads button.at-layer")
    assert {button.get_attribute("data-layer") for button in marked.all()} == {"1"}
    assert marked.count() == page.locator('table.heads button[data-layer="1"]').count()
    maps = page.locator("table.heads").count()
    assert page.locator("table.heads button.at-head").count() == maps
    page.mouse.move(0, 0)
    assert marked.count() == 0


def test_the_svg_download_is_complete_and_light(visit):
    page = visit(color_scheme="dark")
    with page.expect_download() as download:
        page.locator("[data-download='mi-input']").click()
    text = Path(download.value.path()).read_text(encoding="utf-8")
    assert download.value.suggested_filename == "mi-input.svg"
    assert "var(--" not in text
    assert "#1b4f91" in text


def test_without_scripts_the_article_is_still_whole(visit, story):
    page = visit(java_script_enabled=False)
    assert page.locator("figure").count() == len(story.figures)
    for picture in page.locator(".panel:not(details.further *) .static svg").all():
        assert picture.bounding_box()["height"] > 50
    assert page.locator("table.heads button").first.is_visible()
    assert not page.locator("#theme").is_visible()
    assert not page.locator(".controls").first.is_visible()


def test_print_shows_static_pictures_on_white(visit):
    page = visit(color_scheme="dark", place="#mi-input")
    page.locator("#mi-input .live svg").wait_for()
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("#mi-input .static").is_visible()
    assert not page.locator("#mi-input .live").is_visible()
    assert not page.locator(".bar").is_visible()


def test_markup_in_names_stays_text(visit, tmp_path):
    from synthetic_run import make_analysis

    from infoflow.report import write_report

    evil = "<img src=x onerror=alert(1)><script>alert(1)</script>"
    run = make_analysis(tmp_path, name=evil)
    run.update(title=evil, models=[{"name": evil, "objective": "masked-lm", "seed": 0}])
    page = visit(write_report(run))
    _scroll_through(page)
    page.locator("table.heads button").first.click()
    assert page.locator("h1").inner_text() == evil
    assert evil in page.locator(".head-panel h4").inner_text()
    assert page.locator("img").count() == 0


def test_a_very_long_name_leaves_room_for_the_chart(visit, tmp_path):
    from synthetic_run import make_analysis

    from infoflow.report import write_report

    name = "/home/someone/models/" + "a-very-long-folder-name/" * 6
    run = make_analysis(tmp_path, name=name, tables=("mutual_information", "head_confidence"))
    run.update(title=name, models=[{"name": name, "objective": "masked-lm", "seed": 0}])
    page = visit(write_report(run), width=390)
    unfold(page)
    _scroll_through(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("#mi-input .live .role-axis-grid").last.bounding_box()["width"] > 150


def test_one_measure_of_similar_layers_is_shown_at_a_time(visit, tmp_path):
    from test_similarity import grid, study

    from infoflow.report import write_report

    first, second = ("causal-lm", 0), ("masked-lm", 0)
    rows = [row for metric in ("rsa", "procrustes") for row in grid(first, second, metric=metric)]
    page = visit(write_report(study(tmp_path, rows)), place="#space-similarity;metric=procrustes")
    shown = page.locator("#space-similarity .metric:not(.away)")
    assert shown.get_attribute("data-metric") == "procrustes"
    page.locator("#space-similarity [role=radio]", has_text="Procrustes").press("ArrowRight")
    assert shown.get_attribute("data-metric") == "rsa"
    assert page.url.endswith("#space-similarity;metric=rsa")
    shown.locator(".live svg").wait_for()
    assert page.locator("#space-similarity [aria-checked=true]").inner_text() == "RSA"
    page.emulate_media(media="print")
    assert page.locator("#space-similarity .metric").evaluate_all("all => all.every(one => one.offsetHeight > 0)")


@pytest.mark.parametrize("width", [390, 1280])
def test_the_contents_never_overflow_and_lead_everywhere(visit, story, width):
    page = visit(width=width)
    page.locator("#contents > summary").click()
    sheet = page.locator(".sheet").bounding_box()
    assert sheet["x"] >= 0
    assert sheet["x"] + sheet["width"] <= width
    wide = "all => all.filter((one) => one.offsetParent && one.getBoundingClientRect().right > innerWidth).length"
    assert page.locator(".bar a, .sheet a").evaluate_all(wide) == 0
    targets = page.locator(".toc a").evaluate_all("all => all.map((one) => one.hash.slice(1))")
    figures = [figure.id for section in story.sections for figure in section.figures]
    assert [target for target in targets if target in figures] == figures
    cut = "all => all.filter((one) => one.offsetTop > 20 && getComputedStyle(one.parentElement).overflow !== 'hidden')"
    assert page.locator(".bar .links a").evaluate_all(f"{cut}") == []


def test_search_finds_a_head_and_opens_it(visit):
    page = visit()
    page.keyboard.press("/")
    page.keyboard.type("encoder 3.5")
    hits = page.locator("#found a")
    texts = hits.all_inner_texts()
    assert len(texts) == 2  # masked LM and translation have an encoder
    assert all("encoder self-attention, layer 3, head 5" in text for text in texts)
    hits.first.click()
    page.locator(".head-panel").wait_for()
    assert "layer 3, head 5" in page.locator(".head-panel h4").inner_text()


def test_sections_fold_on_narrow_screens_and_open_for_a_link(visit):
    page = visit(width=390)
    assert not page.locator("#mi-input").is_visible()
    fold = page.locator("#knows .fold")
    assert fold.get_attribute("aria-expanded") == "false"
    fold.click()
    assert page.locator("#mi-input").is_visible()
    again = visit(place="#identity", width=390)
    assert again.locator("#identity").is_visible()
    assert visit(width=1280).locator("#mi-input").is_visible()


def test_the_first_screen_fits_a_laptop_and_two_phones(visit):
    page = visit(width=1280)
    assert page.locator(".doors").evaluate("box => box.getBoundingClientRect().bottom") <= 830
    assert page.locator(".card").count() == 3
    phone = visit(width=390)
    assert phone.locator(".card").last.evaluate("box => box.getBoundingClientRect().bottom + scrollY") <= 1800
