"""Where headless Chromium is, and how the tests start it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@contextmanager
def chromium() -> Iterator:
    """The browser; the test is passed over where there is none."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS) as started,
    ):
        yield started


def unfold(page):
    """Every section that is folded on a narrow screen, and every further figure."""
    page.evaluate("document.querySelectorAll('details.further').forEach((more) => more.open = true)")
    page.evaluate("document.querySelectorAll('.question.folded .fold').forEach((button) => button.click())")
