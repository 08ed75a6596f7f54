"""Tests use public names first: how many private ones each room's tests import, which may only become fewer."""

import ast
import re
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent
PRIVATE = {
    "adaptation": 62,
    "alignment": 6,
    "cli": 8,
    "corpus": 23,
    "docs": 3,
    "dynamics": 6,
    "engine": 28,
    "evidence": 38,
    "explorer": 16,
    "findings": 20,
    "flow": 2,
    "foundation": 5,
    "heads": 18,
    "models": 3,
    "objectives": 8,
    "over_training": 14,
    "probing": 46,
    "pruning": 1,
    "report": 149,
    "representations": 37,
    "retrieval": 4,
    "studies": 13,
    "training": 1,
}
"""Imported names by room. A second implementation must see the inside; all else asks for a public name."""


def test_no_room_imports_more_private_names():
    found = Counter(room for path in sorted(TESTS.rglob("*.py")) for room in _private(path))
    told = [f"{room}: {found[room]}, here {PRIVATE.get(room, 0)}" for room in sorted({*found, *PRIVATE})
            if found[room] != PRIVATE.get(room, 0)]  # fmt: skip
    assert not told, f"import public names; where private ones are fewer now, write that here. {'; '.join(told)}"


def _private(path: Path) -> list[str]:
    """The room of the tests, once for each private name that a file imports; not those in texts of programs."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and not node.level:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    inside = [name for name in names if re.match(r"infoflow\..*\b_(?!_)|infoflow\._(?!_)", name)]
    return [path.relative_to(TESTS).parts[0]] * len(inside)
