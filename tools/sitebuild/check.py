"""Looks at every page of the built site in Chromium, with the network refused, and lists what is wrong.

PYTHONPATH=tools:src .venv/bin/python -m sitebuild.check
"""

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from playwright.sync_api import Browser, Page, Route, sync_playwright

from .__main__ import ROOT

NARROW, WIDE = 390, 1280
LEAST_CONTRAST = 4.5  # of text on its ground, as WCAG asks for

# What one page says about itself: all that the checks need, in one call.
_LOOK = """() => {
    const all = (selector) => [...document.querySelectorAll(selector)];
    const article = "article.md-content__inner";
    const inside = document.querySelector(article) ? article : "body";  // a report is a page of its own
    return {
        links: all("a[href]").map((a) => a.getAttribute("href")),
        ids: all("[id]").map((e) => e.id),
        headings: all(["h1", "h2", "h3", "h4", "h5", "h6"].map((h) => `${inside} ${h}`).join(", "))
            .map((h) => [Number(h.tagName[1]), h.textContent.trim().slice(0, 60)]),
        mute: all("img").filter((i) => !i.hasAttribute("alt") || (i.closest(inside) && !i.alt.trim()))
            .map((i) => i.src.slice(0, 80)),
        broken: all("img").filter((i) => i.complete && !i.naturalWidth).map((i) => i.src.slice(0, 80)),
        text: document.querySelector(inside)?.textContent ?? "",
    };
}"""
_FOUND = """() => [...document.querySelectorAll("*")]
    .some((e) => /[1-9]\\d* results?/.test(e.shadowRoot?.textContent ?? ""))"""
_LINKS = """() => [...document.querySelectorAll("*")]
    .flatMap((e) => [...(e.shadowRoot?.querySelectorAll("ol a[href]") ?? [])].slice(0, 1)).map((a) => a.href)"""
SEARCHES = {"entropy": "methods/head_entropy", "heads": "guides/heads", "prune": "guides/pruning",
            "probe": "guides/probing", "layers": "guides/layers"}  # fmt: skip
"""What somebody types, and the page that comes first."""
_WIDTH = "() => document.documentElement.scrollWidth"
_CONTRAST = """() => {
    const luminance = (rgb) => rgb.map((c) => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
    const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
    const colour = (css, over) => {
        canvas.fillStyle = `rgb(${over})`; canvas.fillRect(0, 0, 1, 1);
        canvas.fillStyle = css; canvas.fillRect(0, 0, 1, 1);
        return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
    };
    const ground = (e) => e ? colour(getComputedStyle(e).backgroundColor, ground(e.parentElement)) : [255, 255, 255];
    const poor = [];
    for (const selector of ["p", "li", "td", "th", "pre code", "h2", "p a"]) {
        const e = document.querySelector("article.md-content__inner " + selector);
        if (!e || !e.checkVisibility()) continue;
        const back = ground(e), front = colour(getComputedStyle(e).color, back);
        const [one, other] = [luminance(front), luminance(back)];
        const ratio = (Math.max(one, other) + .05) / (Math.min(one, other) + .05);
        if (ratio < LEAST) poor.push(`${selector} ${ratio.toFixed(1)}`);
    }
    return poor;
}""".replace("LEAST", str(LEAST_CONTRAST))


@dataclass(slots=True)
class Site:
    """What was seen, and what is wrong."""

    origin: str
    ids: dict[str, set[str]] = field(default_factory=dict)
    links: dict[str, list[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def say(self, page: str, what: str) -> None:
        self.wrong.append(f"{page}: {what}")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def check(folder: Path) -> list[str]:
    """All that is wrong with the site in `folder`, one line each."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    site = Site(f"http://127.0.0.1:{server.server_port}/")
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = _page(browser, site)
            for path in sorted(folder.rglob("*.html")):
                _look(page, site, path.relative_to(folder).as_posix())
            _search(page, site)
            _from_disk(browser, site, folder)
            browser.close()
    finally:
        server.shutdown()
    site.wrong += _unresolved(site, folder)
    return site.wrong


def _page(browser: Browser, site: Site) -> Page:
    """A page that refuses all but the site itself, and tells of requests, errors and exceptions."""
    page = browser.new_page(viewport={"width": NARROW, "height": 844}, color_scheme="light")

    def answer(route: Route) -> None:
        address = route.request.url
        if address.startswith((site.origin, "data:", "blob:", "file:")):
            route.continue_()
        else:
            site.say(page.url, f"asks for {address}")
            route.abort()

    page.route("**/*", answer)
    page.on("console", lambda message: message.type == "error" and site.say(page.url, f"console: {message.text}"))
    page.on("pageerror", lambda error: site.say(page.url, f"script: {error}"))
    return page


def _look(page: Page, site: Site, path: str) -> None:
    """One page, narrow and light, then wide, then dark."""
    page.goto(site.origin + path, wait_until="load")
    seen = page.evaluate(_LOOK)
    site.ids[path], site.links[path] = set(seen["ids"]), seen["links"]
    for picture in seen["mute"]:
        site.say(path, f"a picture without text: {picture}")
    for picture in seen["broken"]:
        site.say(path, f"a picture that does not load: {picture}")
    if "[@" in seen["text"].replace("[@key]", ""):
        site.say(path, "a citation that was not replaced")
    for what in [*_headings(seen["headings"]), *_sizes(page)]:
        site.say(path, what)


def _sizes(page: Page) -> Iterator[str]:
    for width in (NARROW, WIDE):
        page.set_viewport_size({"width": width, "height": 844})
        if (needed := page.evaluate(_WIDTH)) > width:
            yield f"is {needed} pixels wide where {width} are there"
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        yield from (f"in {scheme} colours too little contrast: {poor}" for poor in page.evaluate(_CONTRAST))
    page.set_viewport_size({"width": NARROW, "height": 844})


def _headings(headings: list[tuple[int, str]]) -> Iterator[str]:
    """One heading of the first level, and none that skips a level."""
    levels = [level for level, _ in headings]
    if levels.count(1) != 1:
        yield f"has {levels.count(1)} headings of the first level"
    for (before, _), (level, text) in pairwise(headings):
        if level > before + 1:
            yield f"a heading of level {level} after one of {before}: {text}"


def _unresolved(site: Site, folder: Path) -> Iterator[str]:
    """Links to files and anchors that are not there. Addresses elsewhere are left alone."""
    for path, links in site.links.items():
        for link in dict.fromkeys(links):
            if urlsplit(link).scheme in ("http", "https", "mailto", "data") and not link.startswith(site.origin):
                continue
            address, fragment = urldefrag(urljoin(site.origin + path, link))
            target = unquote(address.removeprefix(site.origin)) or "index.html"
            target = f"{target}index.html" if target.endswith("/") else target
            if not (folder / target).is_file():
                yield f"{path}: a link to {link}, which is not there"
            elif fragment and target in site.ids and unquote(fragment) not in site.ids[target] | {"__skip"}:
                yield f"{path}: a link to {link}, which has no such anchor"


def _search(page: Page, site: Site) -> None:
    """On loopback the search finds guides and methods first."""
    page.set_viewport_size({"width": WIDE, "height": 844})
    for query, first in SEARCHES.items():
        page.goto(site.origin + "index.html", wait_until="load")
        page.keyboard.press("/")
        page.locator("input[role=combobox]").first.fill(query)
        try:
            page.wait_for_function(_FOUND, timeout=20_000)
        except Exception as error:
            site.say("search", f"finds nothing for {query} ({type(error).__name__})")
            continue
        if found := [link for link in page.evaluate(_LINKS) if not link.startswith(site.origin + first)][:1]:
            site.say("search", f"finds {found[0]} first for {query}, not {first}")


def _from_disk(browser: Browser, site: Site, folder: Path) -> None:
    """Opened from disk the field of the search, which cannot work there, is hidden, and nothing is asked for."""
    page = _page(browser, site)
    page.set_viewport_size({"width": WIDE, "height": 844})
    page.goto((folder / "index.html").resolve().as_uri(), wait_until="load")
    page.wait_for_timeout(500)
    shown = "() => [...document.querySelectorAll('.md-search')].some((e) => e.checkVisibility())"
    if page.evaluate(shown):
        site.say("from disk", "shows a search that cannot work")
    page.close()


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site"
    wrong = check(folder)
    print("\n".join(wrong))
    pages = sum(1 for _ in folder.rglob("*.html"))
    print(f"{pages} pages, {len(wrong)} things wrong.")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
