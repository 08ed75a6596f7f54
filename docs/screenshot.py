"""The picture in the README: the top of a run's report, in headless Chromium, and beside it the run's plan as JSON.

.venv/bin/python docs/screenshot.py runs/quick docs/report.png
"""

import json
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

WIDTH, HEIGHT = 1100, 1220


def main(run: str, picture: str, anchor: str = "") -> None:
    """Save what a reader sees first, or from `anchor` on."""
    address = (Path(run) / "report.html").resolve().as_uri()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(address + anchor)
        page.wait_for_timeout(2000)  # figures are drawn when they come into view
        page.screenshot(path=picture)
        browser.close()
    plan = json.loads((Path(run) / "run.json").read_text(encoding="utf-8"))["plan"]
    Path(picture).with_suffix(".json").write_text(json.dumps(plan, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
