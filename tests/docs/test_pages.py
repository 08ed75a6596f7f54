"""A site of few pages: navigation, links, references, methods and the gallery; and the pages that tell how to do it."""

import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

pytest.importorskip("griffe", reason="the tools for the documentation are not installed")

from sitebuild import (  # noqa: E402
    bibliography,
    checks,
    escaping,
    findings,
    gallery,
    grids,
    links,
    method_pictures,
    methods,
    pages,
    pictures,
    references,
    search,
    staging,
)

SURFACE = (ROOT / "tests" / "surface.txt").read_text(encoding="utf-8")
WRITTEN = [*sorted((ROOT / "docs").rglob("*.md"))]


def test_navigation_follows_the_folders():
    nav = pages.navigation(
        {"index.md": "# Home", "api/index.md": "# API", "api/b.md": "# B", "guides/z.md": "---\norder: 1\n---\n# Z",
         "guides/a.md": "# A"}
    )  # fmt: skip
    assert nav == [{"Home": "index.md"}, {"Guides": [{"Z": "guides/z.md"}, {"A": "guides/a.md"}]},
                   {"API": ["api/index.md", {"B": "api/b.md"}]}]  # fmt: skip


def test_a_page_without_a_place_is_an_error():
    with pytest.raises(ValueError, match=r"lost\.md"):
        pages.navigation({"lost.md": "# Lost"})


def test_every_written_page_has_a_place():
    names = [path.relative_to(ROOT / "docs").as_posix() for path in WRITTEN]
    texts = {staging.MOVED.get(name, name): "# Page" for name in names}
    assert len(pages.navigation(texts)) > 3


def test_links_out_of_the_site_become_names():
    text = "See [examples](../examples), [probing](probing.md#tasks) and `[x](y)`."
    shown = links.kept_inside(text, "notebooks.md", {"guides/probing.md"}, {"probing.md": "guides/probing.md"})
    assert shown == "See `examples`, [probing](guides/probing.md#tasks) and `[x](y)`."


def test_references_list_the_pages_that_cite_them():
    entries = bibliography.read(ROOT / "references.bib")
    page = references.page(entries, {"a.md": "So [@holm1979]."}, {"a.md": "A page"})
    section = page.split("{#ref-holm1979}")[1].split("\n## ")[0]
    assert "[A page](a.md)" in section
    with pytest.raises(ValueError, match="nobody"):
        references.page(entries, {"a.md": "[@nobody]"}, {"a.md": "A"})


def test_every_claim_is_on_the_page_of_findings():
    from infoflow.findings import FINDINGS

    page = findings.page()
    assert page.count("\n### ") == len(FINDINGS)
    assert all(f"{{#{findings.anchor(id)}}}" in page for id in FINDINGS)


def test_every_measure_has_one_method_page():
    from infoflow.flow import AbstractMeasure, PairMeasure

    rooms = [
        importlib.import_module(f"infoflow.{room}") for room in ("heads", "over_training", "probing", "representations")
    ]
    public = {item for room in rooms for item in vars(room).values() if isinstance(item, type)}
    tables = {item.__name__: item.table.name for item in public
              if issubclass(item, AbstractMeasure | PairMeasure) and not inspect.isabstract(item)}  # fmt: skip
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "methods").glob("*.md")]
    headed = [line for page in pages for line in page.splitlines() if line.startswith("measures: ")]
    written = [name.rpartition(".")[2] for line in headed for name in line.removeprefix("measures: ").split(", ")]
    assert {*tables.values()} - {tables.get(name) for name in written} == set()
    assert len(written) == len(set(written))


def test_every_method_page_is_on_their_list():
    texts = {f"methods/{path.name}": path.read_text(encoding="utf-8")
             for path in (ROOT / "docs" / "methods").glob("*.md")}  # fmt: skip
    listed = re.findall(r"^\| \[`(\w+)`\]\(\w+\.md\) \| .+ \|$", methods.index(texts), flags=re.MULTILINE)
    assert sorted(listed) == sorted(Path(name).stem for name in texts)
    text = texts["methods/lens.md"].replace("order: 10", "order: 70")
    with pytest.raises(ValueError, match="must be among 10, 20, 30, 40"):
        methods.page(text, ROOT)


def test_markup_of_a_schema_is_shown_as_it_is():
    assert escaping.cell("a_b *c*, see\n`block_interval` <d> `e|f`") == (
        "a\\_b \\*c\\*, see `block_interval` &lt;d&gt; `e|f`"
    )


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "methods").glob("*.md")), ids=lambda path: path.stem)
def test_a_method_page_has_all_its_parts(path, monkeypatch):
    monkeypatch.setattr(checks, "_tests", lambda folder: [])  # looked through once, below
    page = methods.page(path.read_text(encoding="utf-8"), ROOT)
    headings = re.findall(r"^## (.+)$", page, flags=re.MULTILINE)
    parts = ["What is computed", "Unit, control, interval", "Traps", "Cost", "How it was checked"]
    assert [heading for heading in headings if heading in parts] == parts
    assert f"Table `{path.stem}`" in page
    assert re.search(r"^\*\*.+\?\*\*$", page, flags=re.MULTILINE)


def test_method_pages_open_with_a_picture_and_sentences_that_read_it():
    folder = ROOT / "docs" / "methods"
    shown = set()
    for path in sorted(folder.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        intro = text.partition("\n## ")[0]
        found = re.search(r"\*\*\n\n!\[(.+)\]\((\S+\.svg)\)\n\n([^!#].+?)(?:\n\n|\Z)", intro, flags=re.DOTALL)
        assert found, path.stem
        assert len(found[1]) > 40, path.stem
        assert re.search(r"\d", found[3]), f"{path.stem}: the sentences below a picture give its numbers"
        assert 2 <= len(re.findall(r"[.?](?:\s|$)", found[3])) <= 6, path.stem
        shown.add((folder / found[2]).resolve())
        about = methods.front(text)
        assert (about["figure"][0] in methods.FIGURES) if "figure" in about else "experiments/" in found[2]
    assert all(picture.is_file() for picture in shown)
    own = {picture.resolve() for picture in (folder / "pictures").iterdir()}
    assert own <= shown, "a picture that no page shows"
    assert sum(picture.stat().st_size for picture in own) < 2.5e6


def test_a_picture_of_a_method_has_a_caption_and_is_copied(tmp_path):
    page = methods.page((ROOT / "docs" / "methods" / "head_entropy.md").read_text(encoding="utf-8"), ROOT)
    assert re.search(r"^!\[.+\n\n\*All-MiniLM-L6-v2 on 800 .+\*: `infoflow analyze ", page, flags=re.MULTILINE)
    text, names = pictures.brought_in(page, "methods/head_entropy.md")
    assert names == {"docs/methods/pictures/head_entropy.svg"}
    assert 'src="../pictures/methods-pictures-head_entropy.svg"' in text
    pictures.copy(names, ROOT, tmp_path)
    assert (tmp_path / "pictures" / "methods-pictures-head_entropy.svg").is_file()


def test_a_smaller_picture_keeps_its_texts():
    inner = '<path d="M1.23456,2" aria-label="0.123"/><text>0.12345</text></svg></svg>'
    svg = f'<svg viewBox="0 0 100 50"><svg class="marks">{inner}'
    assert method_pictures.smaller(svg) == (
        '<svg viewBox="-24 0 148 50"><svg class="marks" overflow="visible"><path d="M1.23,2"/>'
        "<text>0.12345</text></svg></svg>"
    )


def test_a_grid_has_its_names_and_the_darker_cells_for_larger_numbers():
    svg = grids.grid(["<a>", "b"], ["c"], [[0.0], [1.0]], [["no"], ["yes"]], across="what")
    assert re.findall(r">([^<]+)</text>", svg) == ["what", "c", "&lt;a&gt;", "no", "b", "yes"]
    assert re.findall(r'fill-opacity="([\d.]+)"', svg) == ["0.05", "0.80"]


def test_the_search_puts_guides_first_and_names_of_the_api_last():
    items = [
        {
            "location": "api/heads.html#infoflow.heads.Entropy",
            "title": "<i>Entropy</i> <small>a</small>",
            "path": ["API", "heads"],
        },
        {"location": "methods/head_entropy.html", "title": "Entropy of heads", "path": ["Methods", "Entropy of heads"]},
        {"location": "guides/heads.html", "title": "What?", "path": ["Guides", "What?"]},
    ]
    words = search.keywords({"guides/heads.md": "---\nkeywords: Heads, roles\norder: 2\n---\n# What?\n", "a.md": "# A"})
    assert [(item["title"], item["path"]) for item in search.ranked(items, words)] == [
        ("Heads, roles: What?", ["Guides", "Heads, roles: What?"]),
        ("Entropy of heads (head_entropy)", ["Methods", "Entropy of heads"]),
        ("API", ["API", "heads", "Entropy"]),
    ]


def test_every_guide_has_keywords_for_the_search():
    texts = {staging.MOVED.get(name, name): path.read_text(encoding="utf-8")
             for path in WRITTEN for name in [path.relative_to(ROOT / "docs").as_posix()]}  # fmt: skip
    guides = {path.replace(".md", ".html") for path in texts if path.startswith("guides/")}
    assert guides <= set(search.keywords(texts))


@pytest.mark.slow
def test_every_page_is_made_in_a_process_that_has_imported_nothing_else():
    """A table that only a subject declares is found although no other test has imported the subject."""
    made = "import pathlib; from sitebuild import staging; print(len(staging.texts(pathlib.Path('.'))))"
    paths = os.pathsep.join([str(ROOT / "tools"), str(ROOT / "src")])
    done = subprocess.run(
        [sys.executable, "-c", made], cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def test_tests_are_told_by_their_names():
    told = checks.told(ROOT / "tests", ["linear_cka"])
    assert re.search(r"- [A-Z].*cka.* \(`representations/test_\w+\.py`\)", told)


BOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def test_the_gallery_has_a_page_for_each_notebook():
    assert sorted(gallery.NAMES) == [path.stem for path in BOOKS]
    made = gallery.pages(ROOT)
    assert made["gallery/index.md"].count("data:image/svg+xml;base64,") == len(BOOKS)


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_notebooks_carry_small_outputs_of_their_present_cells(path):
    book = json.loads(path.read_text(encoding="utf-8"))
    assert book["metadata"]["infoflow"]["cells"] == gallery.digest(book), (
        "The outputs are stale: run python -m sitebuild.gallery FOLDER."
    )
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert [cell["id"] for cell in code if gallery.shows("".join(cell["source"])) and not cell["outputs"]] == []
    said = json.dumps([cell["outputs"] for cell in code])
    assert re.findall(r"/(?:home|root|tmp|work|Users)/|<iframe|<script|[Ww]arning", said) == []
    assert path.stat().st_size < 300_000


def test_a_changed_cell_makes_outputs_stale():
    book = json.loads(BOOKS[0].read_text(encoding="utf-8"))
    before = gallery.digest(book)
    book["cells"][1]["source"] = "1 + 1"
    assert gallery.digest(book) != before


@pytest.mark.parametrize(
    ("source", "shown"), [("x = 1", False), ("x = 1\nx", True), ("for x in []:\n    print(x)", True), ("f = 1", False)]
)
def test_cells_that_show_something(source, shown):
    assert gallery.shows(source) == shown


def test_a_notebook_keeps_neither_progress_nor_warnings_nor_frames():
    from nbformat import v4

    shown = {"text/html": 'a<iframe srcdoc="b">\n</iframe>', "image/png": "c", "text/plain": "d"}
    cell = v4.new_code_cell("f()", outputs=[
        v4.new_output("stream", name="stderr", text="e"), v4.new_output("display_data", data={"text/plain": "50 %"}),
        v4.new_output("execute_result", data=shown),
    ])  # fmt: skip
    (output,) = gallery.kept(v4.new_notebook(cells=[cell])).cells[0].outputs
    assert output.data == {"text/html": f"a{gallery.INSTEAD}", "text/plain": "d"}


def test_outputs_become_html_that_markdown_leaves_alone():
    import nbformat

    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# T"), nbformat.v4.new_code_cell("f()")])
    html = '<div>\n\n<img alt="x" src="data:image/svg+xml;base64,AA"> $a$ [@b]</div>'
    made.cells[1].outputs = [nbformat.v4.new_output("display_data", data={"text/html": html})]
    text, picture = gallery.page(made, "t")
    assert picture == "data:image/svg+xml;base64,AA"
    assert "\n\n<img" not in text
    assert "$" not in text


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_commands_of_the_pages_exist(path):
    """Every `infoflow ...` line of the examples names a command and options that there are."""
    known = set(SURFACE.split()) | {"--install-completion", "--help"}
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    for line in re.findall(r"^(?:\$ )?(?:\S+/)?infoflow (\S+.*?)(?:  #.*)?$", "\n".join(blocks), flags=re.MULTILINE):
        assert line.split()[0] in known, line
        assert set(re.findall(r"(?<!\S)--[\w-]+", line)) <= known, line


def test_a_site_of_few_pages_builds_strictly(tmp_path):
    """The extensions within the generator: a formula, a citation and a link from one page to another."""
    pytest.importorskip("zensical", reason="the tools for the documentation are not installed")
    entries = bibliography.read(ROOT / "references.bib")
    found = {
        "index.md": "# Home\n\nSee [background](background/a.md) and [@holm1979]: $x^2$.\n",
        "background/a.md": "# A\n\n>>> 1 + 1\n2\n",
    }
    titles = {"index.md": "Home", "background/a.md": "A"}
    pages.write(tmp_path / "docs", {**found, "references.md": references.page(entries, found, titles)})
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").replace("build/docs", "docs")
    settings = re.sub(r"^extra_(css|javascript):\n  - .*\n", "", settings, flags=re.MULTILINE)
    settings = settings.replace("bibliography: references.bib", f"bibliography: {ROOT / 'references.bib'}")
    (tmp_path / "mkdocs.yml").write_text(settings, encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(tmp_path / "mkdocs.yml")]
    done = subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT / "tools"), "PATH": ""},
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    html = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "<msup><mi>x</mi><mn>2</mn></msup>" in html
    assert 'href="references.html#ref-holm1979"' in html
    assert 'class="gp"' in (tmp_path / "site" / "background" / "a.html").read_text(encoding="utf-8")
