"""Attention views in headless Chromium."""

import re
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("playwright", reason="playwright is not installed: pip install playwright")
pytestmark = [pytest.mark.browser, pytest.mark.slow]

SENTENCE, TRANSLATION = "the old cat sees <script>alert(1)</script> the dog", "le vieux chat voit le chien"


@pytest.fixture(scope="module")
def model(matched_models):
    return matched_models["translation"]


@pytest.fixture(scope="module")
def seen(model):
    from infoflow.heads import sentence_attention

    return sentence_attention(model, SENTENCE, TRANSLATION)


@pytest.fixture(scope="module")
def view(model, seen, tmp_path_factory):
    from infoflow.report import further_answers, write_view

    answers = further_answers(model, seen.sentence)
    return write_view(seen, tmp_path_factory.mktemp("view") / "view.html", answers)


@pytest.fixture(scope="module")
def long_view(tmp_path_factory):
    """BERT-base's heads on 512 tokens, from random weights of small width."""
    import torch
    import transformers

    from infoflow.heads import sentence_attention
    from infoflow.models import load_model
    from infoflow.report import further_answers, write_view

    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "hidden_size": 48, "num_hidden_layers": 12, "num_attention_heads": 12}
    module = transformers.BertForMaskedLM(transformers.BertConfig(**sizes, intermediate_size=48))
    model = load_model(module)
    seen = sentence_attention(model, torch.randint(1, 50, (512,)).tolist())
    return write_view(seen, tmp_path_factory.mktemp("long") / "view.html", further_answers(model, seen.sentence))


def percent(share):
    return f"{100 * share:.0f}%" if share >= 0.0995 else f"{100 * share:.1f}%"


def lines(page):
    page.locator("svg.lines .token").first.wait_for()
    return page.locator("svg.lines")


def test_a_token_under_the_pointer_shows_its_row_alone(visit, view, seen):
    from infoflow.heads import restore

    page = visit(view, "#;kind=decoder/cross;layer=1;head=2")
    before = lines(page).locator("path").evaluate_all("all => all.map(one => one.getAttribute('d')).join('')")
    page.locator(".token[data-side='0'][data-index='2']").hover()
    after = lines(page).locator("path").evaluate_all("all => all.map(one => one.getAttribute('d')).join('')")
    sources = len(seen.sentence.tokens["encoder"])
    assert before.count("M") > after.count("M")
    assert 0 < after.count("M") <= sources
    row = restore(seen.kinds[2].layers[1].weights)[2, 2]
    best = int(row.argmax())
    told = page.locator("#status").inner_text().replace("\u2068", "").replace("\u2069", "")
    token = seen.sentence.tokens["encoder"][best].text
    assert told.startswith(f"“{seen.sentence.tokens['decoder'][2].text}” sees “{token}” {percent(row[best])}")
    page.mouse.move(0, 0)
    assert "strongest weight" in page.locator("#status").inner_text()


def test_the_keyboard_reads_every_token_and_keeps_one(visit, view):
    page = visit(view, "#;show=head")
    lines(page)
    page.locator(".token[data-side='0'][tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    active = "[document.activeElement.dataset.side, document.activeElement.dataset.index]"
    assert page.evaluate(active) == ["1", "1"]
    assert "is seen from" in page.locator("#status").inner_text()
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash").endswith("token=k1")
    assert page.locator(".token[aria-pressed='true']").count() == 1
    page.keyboard.press("Escape")
    assert page.locator(".token[aria-pressed='true']").count() == 0
    assert "token" not in page.evaluate("location.hash")


def test_maps_stand_side_by_side_and_name_their_strongest_weight(visit, view, seen):
    from infoflow.heads import restore

    page = visit(view, "#;kind=encoder/self;layer=0;head=3")
    lines(page)
    names = page.locator(".map-scroll").evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
    weights = restore(seen.kinds[0].layers[0].weights)[3]
    assert percent(weights.max()) in names[0]
    assert names[0].startswith("attention: ")
    weighted = weights * seen.kinds[0].layers[0].value_norms[3]
    weighted /= weighted.sum(axis=1, keepdims=True)
    assert names[1].startswith("value-weighted: ")
    assert percent(weighted.max()) in names[1]
    tops = page.locator(".attention-map").evaluate_all("all => all.map(one => one.getBoundingClientRect().top)")
    assert len(set(tops)) == 1


def test_special_tokens_can_be_hidden(visit, view, seen):
    page = visit(view, "#;show=head")
    lines(page)
    source = seen.sentence.tokens["encoder"]
    assert page.locator(".token[data-side='0']").count() == len(source)
    page.locator("#special").check()
    assert page.locator(".token[data-side='0']").count() == sum(not token.special for token in source)
    assert "special=hide" in page.evaluate("location.hash")


def test_a_thumbnail_opens_its_head(visit, view):
    page = visit(view, "#;show=model;kind=decoder/self")
    page.locator("table.thumbs button[tabindex='0']").focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    lines(page)
    assert page.locator("#layer").input_value() == "1"
    assert page.locator("#head").input_value() == "1"
    assert page.locator("#views [aria-checked=true]").inner_text() == "one head"


def test_thumbnails_show_the_weights(visit, view, seen):
    page = visit(view, "#;show=model;kind=decoder/self")
    page.locator("table.thumbs canvas").first.wait_for()
    page.wait_for_timeout(300)
    canvas = page.locator("button[data-layer='0'][data-head='0'] canvas")
    reds = canvas.evaluate(
        "c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].filter((_, i) => i % 4 == 0)"
    )
    weights = seen.kinds[1].layers[0].weights[0].ravel()
    assert len(reds) == len(weights)
    assert np.corrcoef(reds, weights)[0, 1] < -0.95  # the more, the darker


@pytest.fixture(scope="module")
def pair_view(matched_models, tmp_path_factory):
    from infoflow.heads import sentence_attention
    from infoflow.report import write_view

    seen = sentence_attention(matched_models["masked-lm"], "the old cat", pair="a dog sleeps")
    return seen, write_view(seen, tmp_path_factory.mktemp("pair") / "view.html")


@pytest.mark.parametrize("width", [390, 1280])
def test_lines_go_from_one_sentence_of_a_pair_to_the_other(visit, pair_view, width):
    from infoflow.heads import restore

    seen, path = pair_view
    page = visit(path, "#;show=head;layer=1;head=2;between=AB", width=width)
    first, second = [[i for i, one in enumerate(seen.sentence.tokens["encoder"]) if one.segment == s] for s in (0, 1)]
    drawn = lines(page).locator(".token").evaluate_all("all => all.map(one => [one.dataset.side, one.dataset.index])")
    assert drawn == [["0", str(i)] for i in first] + [["1", str(i)] for i in second]
    assert page.locator("#between [aria-checked=true]").inner_text() == "A → B"
    weights = restore(seen.kinds[0].layers[1].weights)[2][:, second][first]
    assert percent(weights.max()) in page.locator(".map-scroll").first.get_attribute("aria-label")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("#between button", has_text="all").click()
    assert lines(page).locator(".token").count() == 2 * len(first + second)


def test_several_heads_are_drawn_in_colours(visit, view, seen):
    page = visit(view, "#;kind=encoder/self;layer=1;head=2")
    lines(page)
    page.locator("#with button", has_text="0").click()
    page.locator("#with button", has_text="3").click()
    strokes = "all => [...new Set(all.map(one => one.getAttribute('stroke')))].sort()"
    expected = ["var(--series-0)", "var(--series-1)", "var(--series-2)"]
    assert lines(page).locator("path").evaluate_all(strokes) == expected
    assert page.locator("#with [aria-pressed=true]").all_inner_texts() == ["0", "2", "3"]
    assert "heads 2, 0, 3" in lines(page).get_attribute("aria-label")
    page.locator(".token[data-side='0'][data-index='1']").hover()
    assert "(head " in page.locator("#status").inner_text()
    assert "with=0.3" in page.evaluate("location.hash")
    page.locator("#with button", has_text="0").click()
    page.locator("#with button", has_text="3").click()
    assert lines(page).locator("path").evaluate_all(strokes) == ["var(--above)"]


def test_queries_times_keys(visit, view, seen):
    page = visit(view, "#;show=products;kind=encoder/self;layer=1;head=1;token=q3")
    page.locator(".products canvas").first.wait_for()
    layer = seen.kinds[0].layers[1]
    scores = layer.scaling * layer.query[1, 3] @ layer.key[1].T
    shown = page.locator(".products svg").last.locator("text[text-anchor=end]").all_inner_texts()
    shown = [
        float(text.replace("−", "-"))
        for text in page.locator(".products svg").last.evaluate(
            "svg => [...svg.querySelectorAll('text[text-anchor=end]')].map(one => one.textContent)"
        )
    ]
    np.testing.assert_allclose(shown, scores, atol=0.05 + 0.03 * np.abs(scores).max())
    page.locator("#query").select_option("1")
    assert page.evaluate("location.hash").endswith("token=q1")


@pytest.mark.parametrize("show", ["head", "model", "products"])
def test_the_figure_is_a_complete_svg_in_light_colours(visit, view, show):
    page = visit(view, f"#;show={show}", color_scheme="dark")
    page.locator("#view canvas").first.wait_for()
    with page.expect_download() as download:
        page.locator("#save").click()
    text = Path(download.value.path()).read_text(encoding="utf-8")
    assert download.value.suggested_filename == f"attention-encoder-self-{show}.svg"
    assert text.startswith("<svg")
    assert "var(--" not in text
    assert "NaN" not in text
    assert "<path" in text
    assert "<image" not in text
    assert "<script" not in text
    assert show == "model" or "&lt;" in text


def test_the_address_keeps_the_state(visit, view):
    page = visit(view, "#;show=head")
    lines(page)
    page.locator("[data-kind='decoder/cross']").click()
    page.locator("#layer").select_option("1")
    page.locator("#head").select_option("3")
    page.get_by_role("radio", name="value-weighted").click()
    again = visit(view, page.evaluate("location.hash"))
    lines(again)
    assert again.locator("#kinds [aria-checked=true]").inner_text() == "cross-attention"
    assert again.locator("#layer").input_value() == "1"
    assert again.locator("#head").input_value() == "3"
    assert again.locator("#maps [aria-checked=true]").inner_text() == "value-weighted"


@pytest.mark.parametrize(
    "address", ["#;kind=x;layer=99;head=-1;token=q999;map=none", "#%E0%A4%A", "#;token=k99;show=products"]
)
def test_a_strange_address_does_no_harm(visit, view, address):
    page = visit(view, address)
    page.locator("#view canvas").first.wait_for()
    assert page.locator("#view canvas").first.is_visible()


@pytest.mark.parametrize("show", ["head", "model", "products", "route"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_never_scrolls_sideways(visit, view, width, show):
    page = visit(view, f"#;show={show}", width=width)
    page.locator("#view canvas, #view .flow .node").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_dark_and_light_repaint_the_maps(visit, view):
    page = visit(view, "#;show=head", color_scheme="dark")
    lines(page)
    corner = "document.querySelector('.cells canvas').toDataURL()"
    dark = page.evaluate(corner)
    page.locator("#theme").click()
    lines(page)
    page.wait_for_timeout(200)
    assert page.evaluate(corner) != dark


def test_a_long_sentence_scrolls_and_does_not_freeze(visit, long_view, capsys):
    started = time.monotonic()
    page = visit(long_view, "#;show=head")
    lines(page)
    opened = time.monotonic() - started
    assert page.locator(".token[data-side='0']").count() == 512
    scroll = page.locator(".map-scroll").first
    assert scroll.evaluate("box => box.scrollWidth > 2 * box.clientWidth && box.scrollHeight > 2 * box.clientHeight")
    assert scroll.locator("canvas").evaluate("c => c.getBoundingClientRect().width / c.width") >= 14
    assert (
        lines(page).locator("path").evaluate_all("all => all.map(one => one.getAttribute('d')).join('')").count("M")
        <= 4000
    )
    started = time.monotonic()
    page.get_by_role("radio", name="all heads").click()
    page.wait_for_timeout(100)
    page.evaluate("0")
    thumbs = time.monotonic() - started
    assert page.locator("table.thumbs canvas").count() == 144
    with capsys.disabled():
        size = long_view.stat().st_size / 1e6
        print(f"\n512 tokens, 144 heads: {size:.0f} MB, open {opened:.2f} s, thumbnails {thumbs:.2f} s")


def test_a_named_head_opens(visit, tmp_path):
    """A head that looks one back is named above all heads, and a click opens it."""
    import sys

    sys.path.insert(0, str(Path(__file__).parents[1] / "heads"))
    from test_sentence_pictures import attending, looking

    from infoflow.report import write_view

    seen, _ = attending(np.stack([looking([5, 2, 7, 1, 3, 0, 4, 6], 8), looking([0, *range(7)], 8)]))
    page = visit(write_view(seen, tmp_path / "view.html"))
    named = page.locator(".telling-heads button")
    assert named.all_inner_texts() == ["0.1 looks at the token before (7 of 7 tokens)"]
    named.click()
    lines(page)
    assert page.locator("#head").input_value() == "1"
    assert page.locator("[data-view=route]").count() == 0  # the file was written without further answers


def route_of(page, model, position, least):
    """The words below the picture, and whether they count the edges that `find_route` finds."""
    find_route = pytest.importorskip("infoflow.routes").find_route
    told = page.locator("#status").inner_text()
    counts = [
        len(find_route(model, SENTENCE, TRANSLATION, position=position, threshold=share).edges)
        for share in (least - 5e-4, least + 5e-4)  # the page has thousandths
    ]
    (count,) = re.findall(r"has (\d+) edges?", told)
    return told, counts[1] <= int(count) <= counts[0]


def test_the_route_is_that_of_the_chosen_prediction(visit, view, model):
    page = visit(view, "#;show=route;at=3")
    page.locator(".flow .node").wait_for()
    told, agrees = route_of(page, model, 3, 0.04)
    assert told.startswith("The prediction at")
    assert agrees
    page.locator("[data-name=least]").press("End")
    assert "least=0.2" in page.evaluate("location.hash")
    fewer, agrees = route_of(page, model, 3, 0.2)
    assert fewer != told
    assert agrees
    assert page.locator(".node-lens .candidates li").count() == 5


def test_any_state_is_followed(visit, view):
    page = visit(view, "#;show=route;at=3")
    node = page.locator(".flow .node")
    node.press("ArrowDown")
    assert page.evaluate("location.hash").endswith("trace=1.5.3")
    assert "after the cross-attention of layer 1" in page.locator("#status").inner_text()
    assert page.locator(".node-lens .candidates").count() == 0  # the lens reads whole layers
    node.press("ArrowLeft")
    assert "trace=1.5.2" in page.evaluate("location.hash")
    low = page.locator("svg.flow").bounding_box()["height"] - 60
    page.locator("svg.flow").click(position={"x": 50, "y": low})  # the encoder's first token, near the input
    assert "trace=0." in page.evaluate("location.hash")
    again = visit(view, page.evaluate("location.hash"))
    again.locator(".flow .node").wait_for()
    assert again.locator("#status").inner_text() == page.locator("#status").inner_text()
