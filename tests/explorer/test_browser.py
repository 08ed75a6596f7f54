"""The live page in headless Chromium, against the library's own functions."""

import re
from contextlib import contextmanager

import numpy as np
import pytest
from asking import KINDS, SENTENCE, TRANSLATION
from support.chromium import chromium

pytest.importorskip("playwright", reason="playwright is not installed: pip install playwright")
pytest.importorskip("starlette", reason='the extra is not installed: pip install "infoflow[explore]"')
pytestmark = [pytest.mark.browser, pytest.mark.slow]

HOSTILE = "<img src=x onerror=document.title='x'>"
LIMIT = 60_000  # ms: the machine may be busy


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def explorers(models):
    """Started when they are first asked for."""
    from infoflow.explorer import explore

    made = {}

    def explorer(*kinds):
        if kinds not in made:
            made[kinds] = explore(*(models[kind] for kind in kinds))
        made[kinds].app._recent.clear()
        return made[kinds]

    yield explorer
    for one in made.values():
        one.stop()


@pytest.fixture
def visit(browser, explorers):
    """Open the page of some models; on leaving, fail on console errors, exceptions and requests beyond loopback."""
    contexts, problems, requests, allowed = [], [], [], []

    def open_page(*kinds, place="", width=1280, expect=(), **options):
        explorer = explorers(*kinds)
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        context.set_default_timeout(LIMIT)
        contexts.append(context)
        allowed.extend(expect)
        page = context.new_page()
        page.on("console", lambda message: problems.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(explorer.address)
        assert "token" not in page.url
        if place:
            page.goto(page.url.split("#")[0] + place)
            page.reload()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [one for one in problems if not any(re.search(pattern, one) for pattern in allowed)] == []
    assert [url for url in requests if not re.match(r"http://127\.0\.0\.1:\d+/|blob:|data:|file:", url)] == []


def write(page, kind="masked", text=SENTENCE):
    page.fill("#text", text)
    if kind == "translation":
        page.fill("#translation", TRANSLATION)
    page.locator("table.thumbs canvas").first.wait_for()
    settled(page)


def until(page, expression):
    """The page's policy forbids what Playwright's own waiting does in it."""
    for _ in range(LIMIT // 50):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"not within {LIMIT} ms: {expression}")


def settled(page):
    """Nothing is asked for any more."""
    until(page, "!document.querySelector('.waiting') && !document.querySelector('#waiting').textContent")
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(150)


def view(page, name):
    page.locator("#views button", has_text=re.compile(f"^{name}$")).click()
    page.wait_for_timeout(150)
    settled(page)


def told(page):
    return re.sub("[\u2066-\u2069]", "", page.locator("#status").inner_text())


def percent(share):
    return f"{100 * share:.0f}%" if share >= 0.0995 else f"{100 * share:.1f}%" if share >= 0.0005 else "0%"


@pytest.mark.parametrize("kind", KINDS)
def test_type_choose_hide_close_and_save(visit, models, kind, tmp_path):
    """The numbers on the page are those of the library."""
    from infoflow.heads import ablate, read_tokens, restore, sentence_attention, sentence_inputs, token_relevance
    from infoflow.representations import logit_lens

    model, translation = models[kind], TRANSLATION if kind == "translation" else None
    page = visit(kind)
    write(page, kind)
    seen = sentence_attention(model, SENTENCE, translation)
    first = seen.kinds[0]
    sizes = [len(layer.weights) for layer in first.layers]
    assert page.locator("table.thumbs button").count() == sum(sizes)

    # one head: its strongest weight and a token's row
    page.locator("table.thumbs button[data-layer='1'][data-head='1']").click()
    page.locator("svg.lines .token").first.wait_for()
    weights = restore(first.layers[1].weights)[1]
    names = page.locator(".map-scroll").evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
    assert percent(weights.max()) in names[0]
    assert len(names) == 2
    page.locator(".tokens-row button").nth(2).click()
    best = int(weights[2].argmax())
    text = seen.sentence.tokens[first.stack][2].text
    assert told(page).startswith(
        f"“{text}” sees “{seen.sentence.tokens[first.stack][best].text}” {percent(weights[2, best])}"
    )

    # the lens
    view(page, "lens")
    inputs = sentence_inputs(model, read_tokens(model, SENTENCE, translation))
    last = list(logit_lens(model, inputs["input_ids"], None, inputs.get("decoder_input_ids")))[-1].logits.softmax(-1)
    labels = (
        page.locator("table.lens tbody tr").first.locator("button").evaluate_all("all => all.map(one => one.title)")
    )
    assert [one.rsplit(" ", 1)[1] for one in labels] == [percent(float(f"{float(row.max()):.4g}")) for row in last]

    # relevance
    view(page, "relevance")
    position = 2 if kind != "translation" else len(seen.sentence.tokens["decoder"]) - 1
    page.locator("[data-choice=at]").select_option(str(position))
    settled(page)
    found = token_relevance(model, inputs, "gradient-x-input", position=position)
    shown = page.locator("svg.bars text:last-of-type").count()
    assert shown >= 1
    values = [float(one.replace("−", "-")) for one in page.locator("svg.bars").evaluate_all(
        "all => all.flatMap(one => [...one.querySelectorAll('rect')].map(rect => rect.nextElementSibling.textContent))"
    )]  # fmt: skip
    np.testing.assert_allclose(values, found["relevance"], rtol=0.06, atol=1e-4)
    for rows in page.locator("table.heads").evaluate_all(
        "all => all.map(t => [...t.querySelectorAll('th')].map(one => one.textContent))"
    ):
        assert rows[:-1] == sorted(rows[:-1], reverse=True)  # the last layer above, as in all pictures

    # a closed head
    stack = first.stack
    view(page, "one head")
    page.locator("[data-name=act-head]").click()
    page.locator(".gone button").wait_for()
    settled(page)
    view(page, "changes")
    import torch

    with torch.no_grad():
        before = model.module(**inputs).logits[0].log_softmax(-1)
        with ablate(model, [(stack, first.kind, 1, 1)]):
            after = model.module(**inputs).logits[0].log_softmax(-1)
    divergence = (before.exp() * (before - after)).sum(-1)
    most = float(re.search(r"changed most \(([\d.e−+-]+) nats\)", told(page))[1].replace("−", "-"))
    assert most == pytest.approx(float(divergence.max()), rel=0.06)

    # and a token, whose column is then empty; undone, everything is as before
    page.locator("[data-name=act-undo]").click()
    settled(page)
    page.locator("[data-name=act-hide]").click()
    page.locator(".hidden-token").wait_for()
    settled(page)
    view(page, "one head")
    with page.expect_download() as download:
        page.locator("[data-name=act-save]").click()
    download.value.save_as(tmp_path / "saved.html")
    assert download.value.suggested_filename.startswith("explore-")
    assert "Ablated: “" in (tmp_path / "saved.html").read_text(encoding="utf-8")
    page.locator(".gone button").click()
    settled(page)
    names = page.locator(".map-scroll").evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
    assert percent(weights.max()) in names[0]


@pytest.mark.parametrize("kind", ["masked", "grouped"])
def test_which_token_and_which_head_matters(visit, models, kind):
    page = visit(kind)
    write(page)
    view(page, "changes")
    page.locator("[data-strip=tokens]").click()
    until(page, "document.querySelector('[data-strip=tokens]').textContent.startsWith('Which')")
    assert "Hiding “" in told(page)
    assert page.locator("table.effects td:not(.none)").count() > 5
    page.locator("[data-strip=heads]").click()
    until(page, "document.querySelector('[data-strip=heads]').textContent.startsWith('Which')")
    heads = sum(one.num_heads for one in models[kind].anatomy.attentions())
    assert page.locator("table.heads button:not(.empty)").count() == heads
    assert "Closing " in told(page)


@pytest.mark.parametrize("shown", ["all heads", "one head", "route", "lens", "relevance"])
def test_the_saved_file_shows_the_same_picture(visit, browser, shown, tmp_path):
    page = visit("causal")
    write(page)
    view(page, shown)
    if shown == "route":
        page.locator(".flow .node").press("ArrowDown")
        settled(page)
    path = tmp_path / "saved.html"
    with page.expect_download() as download:
        page.locator("[data-name=act-save]").click()
    download.value.save_as(path)
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur()")
    page.wait_for_timeout(200)
    element = "svg.flow" if shown == "route" else "#view"
    live = picture(page, element)
    words = told(page)
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    problems, requests = [], []
    offline = context.new_page()
    offline.on("console", lambda message: problems.append(message.text))
    offline.on("pageerror", lambda error: problems.append(str(error)))
    offline.on("request", lambda request: requests.append(request.url))
    offline.goto(path.as_uri())
    offline.wait_for_timeout(600)
    assert told(offline) == words
    if shown != "relevance":  # whose choice of methods needs the models
        assert picture(offline, element) == live
    assert problems == []
    assert [url for url in requests if not url.startswith("file:")] == []
    context.close()


def picture(page, element):
    """The element alone, at one place of the window: fractions of pixels count."""
    style = "position:fixed;top:0;left:0;width:824px;height:880px;overflow:hidden;z-index:99;background:var(--paper)"
    page.evaluate(f"document.querySelector('#view').style = '{style}'")
    page.wait_for_timeout(500)
    return page.locator(element).screenshot(animations="disabled")


def test_a_link_restores_the_state(visit):
    page = visit("masked")
    write(page)
    page.locator(".tokens-row button").nth(3).click()
    page.locator("[data-name=act-hide]").click()
    page.locator(".hidden-token").wait_for()
    settled(page)
    view(page, "changes")
    words, address = told(page), page.url
    assert "token=" not in address.split("#")[0]
    other = page.context.new_page()
    other.goto(address)
    other.locator(".hidden-token").wait_for()
    settled(other)
    assert told(other) == words
    assert other.locator("#text").input_value() == SENTENCE


@pytest.mark.parametrize("kind", ["masked", "causal", "translation"])
def test_blanks_are_filled_in(visit, kind):
    page = visit(kind)
    text = "the old ___ sees the dog" if kind == "masked" else SENTENCE
    write(page, kind, text)
    page.locator("#fill").click()
    page.locator("#filled .candidates button").first.wait_for()
    settled(page)
    assert page.locator("#filled .candidates li").count() == 10
    word = page.locator("#filled .candidates button").first.inner_text()
    page.locator("#filled .candidates button").first.click()
    settled(page)
    field = page.locator("#translation" if kind == "translation" else "#text").input_value()
    assert word in field
    assert "___" not in field


def test_two_models_side_by_side(visit):
    page = visit("masked", "causal")
    write(page)
    page.locator("#view1 table.thumbs canvas").first.wait_for()
    settled(page)
    boxes = page.locator(".column").evaluate_all("all => all.map(one => one.getBoundingClientRect().top)")
    assert len(boxes) == 2
    assert abs(boxes[0] - boxes[1]) < 2
    page.locator(".column[data-model='0'] .tokens-row button", has_text="cat").click()
    pressed = page.locator(".column[data-model='1'] .tokens-row button[aria-pressed=true]")
    assert pressed.inner_text() == "cat"
    page.locator("#views1 button", has_text="lens").click()
    page.locator("#view table.lens").wait_for()
    page.locator("#view1 table.lens").wait_for()
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(one => one.id)")
    assert len(ids) == len(set(ids))


def test_two_pages_at_once(visit):
    first, second = visit("masked"), visit("masked")
    first.fill("#text", SENTENCE)
    second.fill("#text", "a big dog likes the red house")
    for page, text in ((first, "cat"), (second, "house")):
        page.locator("table.thumbs canvas").first.wait_for()
        settled(page)
        assert text in page.locator(".tokens-row").inner_text()


def test_quick_typing_ends_with_the_last_sentence(visit):
    page = visit("masked")
    page.locator("#text").press_sequentially(SENTENCE + " old red house", delay=15)
    page.locator("table.thumbs canvas").first.wait_for()
    settled(page)
    assert page.locator(".tokens-row button").last.inner_text().strip() == "[SEP]"
    assert "house" in page.locator(".tokens-row").inner_text()


def test_hostile_sentences_execute_nothing(visit):
    page = visit("masked")
    title = page.title()
    write(page, text=HOSTILE)
    page.locator(".tokens-row button").nth(2).click()
    for name in ("one head", "route", "lens", "relevance", "changes", "swap"):
        view(page, name)
    assert page.title() == title
    assert page.locator("img").count() == 0


def test_another_site_cannot_ask(visit, explorers, browser):
    import http.server
    import threading

    page = visit("masked")
    write(page)
    port = explorers("masked").port
    body = (
        f"<form id=f method=post action='http://127.0.0.1:{port}/api/read' enctype='text/plain'>"
        "<input name='{\"text\":\"' value='a\"}'></form>"
    ).encode()

    class Evil(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Evil)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    other = page.context.new_page()
    other.goto(f"http://localhost:{server.server_port}/")
    assert (
        other.evaluate(f"fetch('http://127.0.0.1:{port}/api/read', {{method: 'POST', body: '{{}}'}}).catch(() => 0)")
        == 0
    )
    with other.expect_navigation() as navigation:
        other.evaluate("document.getElementById('f').submit()")
    assert navigation.value.status in (401, 403, 415)
    server.shutdown()


def test_the_keyboard_alone(visit):
    page = visit("masked")
    page.keyboard.press("/")
    page.keyboard.type(SENTENCE)
    page.keyboard.press("Enter")
    page.locator("table.thumbs canvas").first.wait_for()
    settled(page)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("3")
    page.locator("svg.lines .token").first.wait_for()
    assert page.locator("#views [aria-checked=true]").inner_text() == "one head"
    page.keyboard.press("]")
    page.keyboard.press("ArrowUp")
    assert (page.locator("#layer").input_value(), page.locator("#head").input_value()) == ("1", "1")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert page.locator(".tokens-row [aria-pressed=true]").count() == 1
    page.keyboard.press("x")
    page.locator(".gone button").wait_for()
    assert "head 1.1 closed" in page.locator(".gone").inner_text()
    settled(page)
    page.keyboard.press("z")
    page.locator(".gone").wait_for(state="detached")
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    page.locator("#help").wait_for(state="hidden")
    settled(page)
    with page.expect_download():
        page.keyboard.press("s")


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_it_fits_and_everything_has_a_name(visit, width, scheme):
    page = visit("translation", width=width, color_scheme=scheme, reduced_motion="reduce")
    write(page, "translation")
    for name in ("all heads", "route", "one head", "queries and keys", "lens", "relevance", "changes", "swap"):
        view(page, name)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        nameless = page.evaluate(
            "[...document.querySelectorAll('button, select, input, textarea, [role=button]')].filter(one =>"
            " one.checkVisibility() &&"
            " !(one.getAttribute('aria-label') || one.textContent.trim() || one.labels?.length))"
            ".map(one => one.outerHTML.slice(0, 120))"
        )
        assert nameless == []
    if width == 390:
        small = page.evaluate(
            "[...document.querySelectorAll('#views button, .tokens-row button, .act')].filter(one =>"
            " one.checkVisibility() && one.getBoundingClientRect().height < 44).map(one => one.textContent)"
        )
        assert small == []
    assert page.evaluate("getComputedStyle(document.querySelector('.pictures')).transitionDuration") == "0s"


def test_a_stopped_server_is_said_with_a_way_back(models, visit, browser):
    from infoflow.explorer import explore

    explorer = explore(models["masked"])
    with opened(browser, explorer.address) as page:
        write(page)
        explorer.stop()
        page.fill("#text", "a dog sleeps")
        page.locator("#trouble button").wait_for()
        assert "The explorer was stopped. Start it again with: infoflow explore" in page.locator("main").inner_text()
        assert page.locator("#text").input_value() == "a dog sleeps"


@contextmanager
def opened(browser, address):
    context = browser.new_context()
    context.set_default_timeout(LIMIT)
    page = context.new_page()
    page.goto(address)
    yield page
    context.close()


def test_errors_are_one_sentence_and_keep_the_text(visit):
    page = visit("masked", expect=["422"])
    write(page)
    page.fill("#text", "cat " * 200)
    page.locator(".column-trouble:not([hidden])").wait_for()
    assert "takes at most 64" in page.locator(".column-trouble").inner_text()
    assert page.locator("#text").input_value().count("cat") == 200
    assert page.locator(".pictures").is_hidden()  # they showed the sentence before
    assert page.locator(".taken").is_hidden()
    write(page)
    assert page.locator(".pictures").is_visible()
    assert page.locator(".column-trouble").is_hidden()


def test_what_to_choose_is_said_until_a_token_is_chosen(visit):
    page = visit("masked")
    write(page)
    assert page.locator("[data-name=act-hide]").inner_text() == "Choose a token to hide"
    page.locator(".tokens-row button", has_text="cat").click()
    assert page.locator("[data-name=act-hide]").inner_text() == "Hide “cat”"


def test_a_second_sentence_makes_a_pair(visit):
    page = visit("masked")
    page.fill("#pair", "a dog sleeps")
    write(page)
    second = page.locator(".tokens-row .second").all_inner_texts()
    assert (second[:2], "".join(second[2:-1]).lstrip("▁")) == (["a", "dog"], "sleeps")
    page.locator("#between button", has_text="A → B").click()
    view(page, "one head")
    page.locator("svg.lines .token").first.wait_for()
    names = page.locator("svg.lines .token[data-side='1']").evaluate_all(
        "all => all.map(one => one.getAttribute('aria-label'))"
    )
    assert all(name.endswith("sentence B") for name in names)
    assert len(names) == len(second)
    page.fill("#pair", "")
    until(page, "!document.querySelector('#between')")
    assert visit("causal").locator("#pair").count() == 0
