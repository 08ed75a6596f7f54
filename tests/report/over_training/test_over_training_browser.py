"""The slider through training in headless Chromium: what follows it, by hand, by keys, by itself."""

import re

import pytest
import synthetic_course as course
from support.chromium import unfold

pytest.importorskip("playwright", reason="playwright is not installed: pip install playwright")
pytestmark = [pytest.mark.browser, pytest.mark.slow]

STEPS = course.STEPS
TABLES = {
    "mutual_information_over_training",
    "convergence",
    "head_confidence_over_training",
    "head_role_events",
    "in_context_learning_over_training",
    "findings_over_training",
}


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    from infoflow.report import write_report

    objectives = ("causal-lm", "masked-lm")
    return write_report(course.make_course(tmp_path_factory.mktemp("followed"), objectives, (1,), tables=TABLES))


def told(page) -> str:
    return page.locator("[data-timeline] output").inner_text()


def alive(page, figure: str):
    """The first chart of a figure, once it is drawn."""
    panel = page.locator(f"#{figure} .panel").first
    panel.scroll_into_view_if_needed()
    panel.locator(".live svg").wait_for()
    return panel


def test_keys_move_through_the_checkpoints_and_the_address_keeps_the_place(visit, followed) -> None:
    page = visit(followed)
    slider = page.locator("[data-timeline] input")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    assert told(page).startswith(f"update {STEPS[-2]:,}")
    assert f"update={STEPS[-2]}" in page.url
    page.keyboard.press("Home")
    assert told(page).startswith("update 0 · 0 tokens")
    page.locator("[data-play]").focus()
    page.keyboard.press("ArrowRight")
    assert told(page).startswith("update 1 ")


def test_every_kind_of_figure_shows_the_step(visit, followed) -> None:
    page = visit(followed, place="#layers-over-training;update=158")
    assert told(page).startswith("update 158")
    profile = page.locator("#layers-over-training .metric").first.locator(".panel").last
    profile.scroll_into_view_if_needed()
    profile.locator(".live svg").wait_for()
    page.wait_for_timeout(300)
    before = profile.locator(".live svg").inner_html()
    current = page.locator("#heads-over-training .steps button[aria-current]").all_inner_texts()
    assert current == ["158", "158"]
    assert page.locator("#heads-over-training .large p").first.inner_text() == "update 158"
    now = page.locator("#findings-over-training li.now")
    assert now.count() == 3
    assert now.first.get_attribute("data-update") == "158"
    page.locator("#heads-over-training .steps button", has_text="2,500").first.click()
    page.wait_for_timeout(300)
    assert told(page).startswith("update 2,500")
    assert profile.locator(".live svg").inner_html() != before
    assert now.first.get_attribute("data-update") == "2500"


def test_playing_goes_on_by_itself_until_it_is_paused(visit, followed) -> None:
    page = visit(followed)
    play = page.locator("[data-play]")
    play.click()
    assert play.get_attribute("aria-label") == "Pause"
    page.wait_for_timeout(1500)
    play.click()
    reached = told(page)
    assert not reached.startswith("update 0 ")
    page.wait_for_timeout(1200)
    assert told(page) == reached


def test_who_wants_no_motion_goes_on_by_a_step_at_a_time(visit, followed) -> None:
    page = visit(followed, place="#layers-over-training;update=0", reduced_motion="reduce")
    play = page.locator("[data-play]")
    assert play.get_attribute("aria-label") == "Advance by one checkpoint"
    play.click()
    page.wait_for_timeout(1300)
    assert told(page).startswith("update 1 ")


@pytest.mark.parametrize("clock", ["tokens", "lr_share"])
def test_another_axis_has_its_own_labels(visit, followed, clock) -> None:
    page = visit(followed)
    panel = alive(page, "layers-over-training")
    page.locator("[data-clock]").select_option(clock)
    page.wait_for_timeout(400)
    texts = panel.locator(".live svg text").all_text_contents()
    title = {"tokens": "tokens that the loss was computed on", "progress": "share of all updates"}
    assert title.get(clock, "share of the summed learning rate") in texts
    labels = [text for text in texts if re.fullmatch(r"[\d.]+[kMG%]", text)]
    assert len(labels) >= 3
    assert all(label.endswith("%") for label in labels) == (clock != "tokens")
    assert f"clock={clock}" in page.url


@pytest.mark.parametrize("scheme", ["dark"])
def test_a_phone_shows_everything_without_scrolling_sideways(visit, followed, scheme) -> None:
    page = visit(followed, width=390, color_scheme=scheme)
    unfold(page)
    for figure in ("layers-over-training", "convergence", "ngrams-over-training"):
        alive(page, figure)
    page.locator("#heads-over-training").scroll_into_view_if_needed()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    bar = page.locator("[data-timeline]").bounding_box()
    assert bar["height"] < 110


def test_a_measure_without_a_still_picture_is_drawn_and_saved_when_it_is_chosen(visit, followed) -> None:
    page = visit(followed)
    page.locator("#layers-over-training [data-metric=information-output]").first.click()
    chosen = page.locator("#layers-over-training .metric:not(.away)")
    chosen.locator(".panel").first.scroll_into_view_if_needed()
    chosen.locator(".live svg").first.wait_for()
    page.wait_for_timeout(500)
    with page.expect_download() as saved:
        page.locator("#layers-over-training [data-download]").click()
    text = saved.value.path().read_text()
    assert "<path" in text
    assert "var(--" not in text
