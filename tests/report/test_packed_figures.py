"""Figures of a page that would be too large are packed, and are the same when its script has unpacked them."""

import base64
import re
import zlib

import pandas as pd
import pytest
from report.drawn import pack_figures

from infoflow.report import write_report
from infoflow.results import Column, RunFolder, TableSchema

PACKED = re.compile(r'<div class="packed-figure">.*?<script type="text/plain">(.*?)</script></div>', re.DOTALL)
# Without the charts, which are drawn when they come near the screen.
TEXTS = """all => all.map((one) => {
  const copy = one.cloneNode(true);
  copy.querySelectorAll(".live, .head-panel").forEach((chart) => chart.remove());
  return [one.id, copy.textContent];
})"""


def unpacked(page):
    return PACKED.sub(lambda found: zlib.decompress(base64.b64decode(found[1])).decode(), page)


MOST = 4_000_000  # characters of a page that is left as it is


@pytest.fixture(scope="module")
def page_of(tmp_path_factory):
    """Writes the page of a run with three tables whose descriptions are short, long and longer, and with this warning:
    what it has of each figure after its heading, and the page."""
    run = RunFolder(tmp_path_factory.mktemp("run"))
    keys = {"model": "m", "objective": "masked-lm", "seed": 0, "trained": True}
    sizes = {"small": 10_000, "middle": 100_000, "large": 300_000}
    for name, size in sizes.items():
        dtypes = {"model": "string", "objective": "string", "seed": "int64", "trained": "bool", "value": "float64"}
        columns = tuple(Column(name=key, dtype=dtype, unit="", description=key) for key, dtype in dtypes.items())
        told = f"Is it {name}?\n{'long ' * (size // 5)}"
        schema = TableSchema(name=name, version=1, description=told, columns=columns)
        run.tables.write(pd.DataFrame([{**keys, "value": 0.5}]), schema)
    run.update(kind="analyze", own=list(sizes), models=[{"name": "m", **keys}])

    def write(warning):
        run.update(warnings=[warning])
        page = write_report(run).read_text(encoding="utf-8")
        figures = {
            name: re.search(rf'<figure id="own-{name}".*?</h3>(.*?)</figure>', page, re.DOTALL) for name in sizes
        }
        return {name: found[1] for name, found in figures.items()}, page

    return write


def test_the_largest_figures_go_first_and_none_more_than_needed(page_of):
    own, page = page_of("w" * 100)
    assert len(page) < MOST
    assert not PACKED.findall(page)
    room = MOST - len(page) + 100
    for length, packed in ((room + 50_000, ("large",)), (room + 1_000_000, ("large", "middle"))):
        found, large = page_of("w" * length)
        assert {name for name in found if PACKED.search(found[name])} == set(packed)
        assert len(PACKED.findall(large)) == len(packed)
        assert all(found[name] == own[name] for name in own if name not in packed)
        assert len(large) <= MOST or len(packed) == 2  # those below 50,000 characters are not worth it
        assert unpacked(large).replace("w" * length, "w" * 100) == page
        assert all(f"Is it {name}?</a></h3>" in large for name in own)


@pytest.mark.browser
def test_unpacked_the_page_is_the_same(visit, report, tmp_path):
    page = report.read_text(encoding="utf-8")
    packed = tmp_path / "report.html"
    packed.write_text(pack_figures(page, most=0, smallest=0), encoding="utf-8")
    assert packed.stat().st_size < report.stat().st_size
    seen = []
    for path in (report, packed):
        opened = visit(path, place="#head-map;head=causal-lm/decoder/self/0/0")
        opened.locator(".head-panel h4, .head-panel h5").first.wait_for()
        assert opened.locator(".packed-figure").count() == 0
        opened.locator("#head-map").scroll_into_view_if_needed()
        seen.append(opened.locator("figure").evaluate_all(TEXTS))
    assert seen[0] == seen[1]
    assert len(seen[0]) > 10


@pytest.mark.slow
@pytest.mark.browser
def test_without_scripts_a_note_says_why_a_figure_is_missing(browser, report, tmp_path):
    packed = tmp_path / "report.html"
    packed.write_text(pack_figures(report.read_text(encoding="utf-8"), most=0, smallest=0), encoding="utf-8")
    page = browser.new_page(java_script_enabled=False)
    page.goto(packed.as_uri())
    assert page.locator(".packed-figure p").first.is_visible()
