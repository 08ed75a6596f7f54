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
