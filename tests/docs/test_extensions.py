"""Formulas, citations and doctests of the site, each alone."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

markdown = pytest.importorskip("markdown", reason="the tools for the documentation are not installed")
pytest.importorskip("latex2mathml", reason="the tools for the documentation are not installed")

from sitebuild import bibliography, formulas  # noqa: E402
from sitebuild.citations import CitationError, keys_in  # noqa: E402
from sitebuild.doctests import fenced  # noqa: E402
from sitebuild.formulas import FormulaError, mathml  # noqa: E402


def shown(text: str, *extensions: str, **settings) -> str:
    return markdown.markdown(text, extensions=["tables", "pymdownx.superfences", *extensions], **settings)


def test_formulas_become_mathml_in_text_and_in_tables():
    page = shown("The norm $|x|$.\n\n| a | b |\n|---|---|\n| $|y_i|$ | 2 |\n", "sitebuild.formulas")
    assert page.count("<math") == 2
    assert "<td>2</td>" in page
    assert "$" not in page


def test_a_display_formula_is_a_block():
    assert 'display="block"' in shown("So:\n\n$$ a = \\frac{1}{n}\n \\sum_i b_i $$\n", "sitebuild.formulas")


@pytest.mark.parametrize("text", ["`$a$`", "It costs $5, or $6.", "```sh\necho $A $B\n```", r"\$a\$"])
def test_dollars_that_are_no_formula_stay(text):
    page = shown(text, "sitebuild.formulas")
    assert "<math" not in page
    assert "$" in page


@pytest.mark.parametrize("latex", [r"\notacommand{x}", r"\frac{1}{2", r"a_{b"])
def test_a_formula_that_fails_is_an_error(latex):
    with pytest.raises(FormulaError, match="This formula"):
        mathml(latex)


def test_every_formula_of_the_docstrings_converts():
    found = 0
    for path in (ROOT / "src").rglob("*.py"):
        for match in formulas._PIECES.finditer(path.read_text(encoding="utf-8")):
            if latex := match["block"]:
                mathml(latex, display=True)
                found += 1
    assert found >= 120


def cited(text: str) -> str:
    settings = {"sitebuild.citations": {"bibliography": str(ROOT / "references.bib")}}
    return shown(text, "sitebuild.citations", extension_configs=settings)


def test_citations_become_links_by_author_and_year():
    assert '<autoref identifier="ref-voita2020">Voita and Titov 2020</autoref>' in cited("After [@voita2020].")
    assert "autoref" not in cited("`[@voita2020]`")


def test_an_unknown_citation_is_an_error():
    with pytest.raises(CitationError, match="nobody1999"):
        cited("After [@nobody1999].")


def test_keys_are_found_once_and_in_order():
    assert keys_in("[@b2] and [@a1], [@b2]") == ["b2", "a1"]


def test_the_bibliography_reads_whole_and_without_latex():
    entries = bibliography.read(ROOT / "references.bib")
    assert len(entries) == (ROOT / "references.bib").read_text(encoding="utf-8").count("\n@")
    assert not [entry for entry in entries.values() if set("{}\\") & set(entry.full.replace("$L_0$", "")) - {"\\"}]
    assert entries["hewitt2019control"].short == "Hewitt and Liang 2019"
    assert entries["popovic2015"].authors == ("Maja Popović",)


def test_doctests_are_fenced_and_fences_are_left():
    lines = ["Text:", ">>> 1 + 1", "2", "", "```py", ">>> inside", "```", "    >>> indented"]
    assert fenced(lines) == [
        "Text:", "", "```pycon", ">>> 1 + 1", "2", "```", "", "```py", ">>> inside", "```", "",
        "    ```pycon", "    >>> indented", "    ```",
    ]  # fmt: skip
