"""Every source that a docstring cites is in references.bib, and nothing else is."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_citations_and_bibliography_agree():
    cited = set()
    for path in (ROOT / "src").rglob("*.py"):
        cited |= set(re.findall(r"\[@([a-z0-9]+)\]", path.read_text(encoding="utf-8")))
    listed = re.findall(r"^@\w+\{(\w+),", (ROOT / "references.bib").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert listed == sorted(set(listed))
    assert set(listed) == cited


def test_the_paper_cites_its_bibliography():
    """Entries that are also in references.bib are the same."""
    paper, own = (ROOT / "paper.md").read_text(encoding="utf-8"), (ROOT / "paper.bib").read_text(encoding="utf-8")
    entries = dict(re.findall(r"^(@\w+\{(?:\w+),)\n(.*?)^\}", own, flags=re.MULTILINE | re.DOTALL))
    keys = [start.partition("{")[2].rstrip(",") for start in entries]
    assert keys == sorted(set(re.findall(r"@([a-z]+\d{4}\w*)", paper)))
    package = (ROOT / "references.bib").read_text(encoding="utf-8")
    assert all(f"{start}\n{text}" in package for start, text in entries.items() if f"{start}\n" in package)


def test_a_release_starts_by_hand_alone_and_names_one_version():
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    (triggers,) = re.findall(r"^on:\n((?: .*\n)+)", workflow, flags=re.MULTILINE)
    assert re.findall(r"^  (\w+):", triggers, flags=re.MULTILINE) == ["workflow_dispatch"]
    (version,) = re.findall(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {version}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
