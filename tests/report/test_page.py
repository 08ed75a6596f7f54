"""The page's structure, read with Python's own parser: what a reader without a browser can check."""

import base64
import hashlib
import io
import json
import re
import zlib
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from synthetic_run import write_again

from infoflow.report import write_report

_VOID = {"meta", "link", "br", "img", "input", "hr"}


class _Page(HTMLParser):
    """Elements with their attributes, visible text, scripts; complains about what is not closed."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.scripts, self._open, self.text = [], [], [], ""
        self.feed(html)
        assert self._open == [], self._open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.scripts.append((tag, dict(attrs), ""))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data):
        if self._open and self._open[-1] in ("script", "style"):
            tag, attrs, text = self.scripts[-1]
            self.scripts[-1] = (tag, attrs, text + data)
        else:
            self.text += data

    def all(self, tag, **wanted):
        return [a for t, a in self.elements if t == tag and all(a.get(k) == v for k, v in wanted.items())]

    @property
    def ids(self):
        return [a["id"] for _, a in self.elements if "id" in a]

    def json_blocks(self, name):
        blocks = [(attrs, text) for _, attrs, text in self.scripts if attrs.get("class") == name]
        return [json.loads(_unpacked(text) if attrs["type"] == "text/plain" else text) for attrs, text in blocks]


def _unpacked(text):
    return zlib.decompress(base64.b64decode(text))


@pytest.fixture(scope="module")
def html(report):
    return report.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html):
    return _Page(html)


def test_first_screen_questions_claims_and_methods_come_in_order(page):
    wanted = ["top", "knows", "changes", "heads", "training", "findings", "methods"]
    assert [id for id in page.ids if id in wanted] == wanted


def test_names_in_the_top_bar_are_short(html):
    bar = re.search(r'<div class="links">(.*?)</div>', html, flags=re.DOTALL)[1]
    assert all(len(name) <= len("Over training") for name in re.findall(r">([^<]+)</a>", bar)), bar


def test_every_figure_has_question_answer_reading_help_data_and_method(story, page):
    assert len(page.all("figure")) == len(story.figures) == 11
    for figure in story.figures:
        assert figure.question.endswith("?")
        assert figure.question in page.text
        assert all(re.search(r"\d", sentence) for sentence in figure.answer)
        assert all(sentence in re.sub(r"\s+", " ", page.text) for sentence in figure.answer)
        assert all(line in page.text for line in figure.how_to_read)
        assert page.all("a", download=f"{figure.id}.csv") or page.all("a", download=f"{figure.id}.csv.gz")
        assert page.all("button", **{"data-download": figure.id})
        assert f"method-{figure.method.id}" in page.ids
    assert len(page.all("summary")) >= len(story.figures)


def test_sample_size_stands_in_every_caption(story):
    for figure in story.figures:
        assert re.search(r"\d,\d{3}", figure.caption), figure.id


def test_every_chart_has_a_control_in_dashed_grey(story):
    for figure in story.figures:
        for panel in figure.panels:
            if figure.id == "head-map":
                continue
            text = json.dumps(panel.spec)
            assert '"color": "var(--control)"' in text, figure.id
            assert '"strokeDash"' in text, figure.id


def test_layers_are_whole_numbers_from_zero(story):
    figure = next(f for f in story.figures if f.id == "mi-input")
    assert sorted(figure.data["layer"].unique()) == list(range(7))
    axes = [layer["encoding"]["x"].get("axis") for layer in figure.panels[0].spec["layer"] if "x" in layer["encoding"]]
    assert {"values": [0, 1, 2, 3, 4, 5, 6]}.items() <= next(axis for axis in axes if axis).items()


def test_ids_are_unique_and_internal_links_lead_somewhere(page):
    assert len(page.ids) == len(set(page.ids))
    targets = {a["href"][1:] for a in page.all("a") if a.get("href", "").startswith("#")}
    assert targets <= set(page.ids)


def test_the_csv_holds_what_the_figure_shows(story, page):
    figure = next(f for f in story.figures if f.id == "identity")
    (link,) = page.all("a", download="identity.csv")
    content = base64.b64decode(link["href"].split(",", 1)[1]).decode()
    read = pd.read_csv(io.StringIO(content))
    np.testing.assert_allclose(read["value"], figure.data["value"], rtol=1e-5)
    assert list(read["series"].dropna().unique()) == ["causal-lm", "masked-lm", "translation"]


def test_nothing_is_loaded_from_anywhere(page, html):
    (policy,) = [a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe-eval" not in policy
    assert not re.search(r"script-src[^;]*unsafe-inline", policy)
    for _, attrs in page.elements:
        for name in ("src", "href"):
            assert not re.match(r"(https?:)?//", attrs.get(name) or ""), attrs
    assert "@import" not in html
    assert not re.search(r"url\(\s*['\"]?(?!data:|#)", "".join(text for tag, _, text in page.scripts if tag == "style"))


def test_the_policy_admits_exactly_the_page_s_scripts(page):
    (policy,) = [a["content"] for a in page.all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    code = [text for tag, attrs, text in page.scripts if tag == "script" and "type" not in attrs]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in code]
    assert re.findall(r"sha256-([^']+)", policy) == hashes
    assert len(code) == 6


def test_the_page_is_small(html):
    assert len(html.encode()) < 5_000_000


def test_numbers_that_are_missing_are_not_printed_as_nan(page):
    assert not re.search(r"\bnan\b", page.text, re.IGNORECASE)


def test_provenance_is_complete(study, page):
    manifest = study.read()
    assert manifest["command"] in page.text
    assert manifest["corpus"]["digest"] in page.text
    assert manifest["provenance"]["packages"]["torch"] in page.text
    assert all(warning in page.text for warning in manifest["warnings"])
    assert "training.learning_rate" in page.text
    assert all(f"tables/{name}.parquet" in page.text for name in study.tables)


def test_the_studys_settings_stand_beside_the_papers(study, html):
    plan = study.read()["plan"]
    table = html.split('<details id="recipe">')[1].split("</details>")[0]
    rows = dict(re.findall(r'<th scope="row">([^<]*)</th><td>([^<]*)</td>', table))
    assert rows["layers"] == str(plan["model"]["layers"])
    assert rows["width"] == str(plan["model"]["width"])
    assert float(rows["peak learning rate"]) == plan["training"]["learning_rate"]


def test_writing_again_gives_the_same_page(study, html):
    assert write_report(study).read_text(encoding="utf-8") == html
    assert sorted(path.name for path in study.path.iterdir()) == ["report.html", "run.json", "tables"]


# ---- runs that hold less


def test_an_analysis_tells_only_what_it_measured(analysis_report):
    page = _Page(analysis_report.read_text(encoding="utf-8"))
    assert "findings" not in page.ids
    assert not {"training", "recipe"} & set(page.ids)
    assert {"mi-input", "identity", "layer-change", "head-map", "head-relevance"} <= set(page.ids)
    assert "bootstrap over sentences" in page.text
    assert "untrained control" not in page.text
    assert "seeds" not in page.all("figure")[0]


@pytest.mark.parametrize(
    "tables", [(), ("mutual_information",), ("head_entropy",), ("head_positional",), ("layer_distance",)]
)
def test_any_subset_of_tables_makes_a_page(tmp_path, tables):
    from synthetic_run import make_analysis

    run = make_analysis(tmp_path, tables=tables)
    page = _Page(write_report(run).read_text(encoding="utf-8"))
    assert len(page.all("figure")) == len(tables) + ("mutual_information" in tables)  # and whether it has converged
    targets = {a["href"][1:] for a in page.all("a") if a.get("href", "").startswith("#")}
    assert targets <= set(page.ids)


# ---- what comes from models and corpora is text, never markup

EVIL = "<script>alert('x')</script>&\"'</style>\u2028{{ 7 * 7 }}"


def test_names_from_outside_are_escaped(tmp_path):
    from synthetic_run import make_analysis

    run = make_analysis(tmp_path, name=EVIL)
    run.update(
        title=EVIL,
        warnings=[EVIL],
        command=EVIL,
        corpus={"name": EVIL, EVIL: EVIL, "sentences": 3},
        plan={EVIL: [EVIL]},
        models=[{"name": EVIL, "objective": EVIL, "seed": 0, "parameters": 10}],
    )
    html = write_report(run).read_text(encoding="utf-8")
    page = _Page(html)
    assert "<script>alert" not in html
    assert "<script>alert('x')</script>" in page.text
    assert "{{ 7 * 7 }}" in page.text
    code = [attrs for tag, attrs, _ in page.scripts if tag == "script" and "type" not in attrs]
    assert len(code) == 6
    assert page.json_blocks("map-data")[0]["grids"][0]["label"] == EVIL
    assert all("$schema" in spec for spec in page.json_blocks("spec"))


def test_claims_from_a_table_are_escaped(tmp_path):
    from synthetic_run import make_study

    run = make_study(tmp_path, seeds=(1,), objectives=("causal-lm",), corpus=EVIL)
    stored = run.tables.stored("findings")
    columns = ["claim", "published", "source", "reason", "note", "control_name", "unit"]
    write_again(run, stored.frame.assign(**dict.fromkeys(columns, EVIL)), stored.schema)
    html = write_report(run).read_text(encoding="utf-8")
    assert "<script>alert" not in html
    assert "<script>alert('x')</script>" in _Page(html).text
