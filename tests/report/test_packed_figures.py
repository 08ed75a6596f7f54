"""Figures of a page that would be too large are packed, and are the same when its script has unpacked them."""

import base64
import re
import zlib

import pytest

PACKED = re.compile(r'<div class="packed-figure">.*?<script type="text/plain">(.*?)</script></div>', re.DOTALL)
# Without the charts, which are drawn when they come near the screen.
TEXTS = """all => all.map((one) => {
  const copy = one.cloneNode(true);
  copy.querySelectorAll(".live, .head-panel").forEach((chart) => chart.remove());
  return [one.id, copy.textContent];
})"""


def figure(name, size):
    return f'<figure id="{name}">\n  <h3 id="{name}-question">{name}?</h3>\n<p>{"long " * (size // 5)}</p></figure>'


def unpacked(page):
    return PACKED.sub(lambda found: zlib.decompress(base64.b64decode(found[1])).decode(), page)


def test_the_largest_figures_go_first_and_none_more_than_needed():
    from infoflow.report._packed_figures import pack_figures

    page = "<body>" + figure("small", 40) + figure("large", 5000) + figure("middle", 2000) + "</body>"
    assert pack_figures(page, most=len(page)) == page
    one = pack_figures(page, most=3000, smallest=100)
    assert len(one) <= 3000
    assert len(PACKED.findall(one)) == 1
    assert figure("middle", 2000) in one
    assert '<h3 id="large-question">large?</h3>' in one
    assert unpacked(one) == page
    every = pack_figures(page, most=0, smallest=100)
    assert len(PACKED.findall(every)) == 2
    assert figure("small", 40) in every
    assert unpacked(every) == page


@pytest.mark.browser
def test_unpacked_the_page_is_the_same(visit, report, tmp_path):
    from infoflow.report._packed_figures import pack_figures

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


@pytest.mark.browser
def test_without_scripts_a_note_says_why_a_figure_is_missing(browser, report, tmp_path):
    from infoflow.report._packed_figures import pack_figures

    packed = tmp_path / "report.html"
    packed.write_text(pack_figures(report.read_text(encoding="utf-8"), most=0, smallest=0), encoding="utf-8")
    page = browser.new_page(java_script_enabled=False)
    page.goto(packed.as_uri())
    assert page.locator(".packed-figure p").first.is_visible()
