"""Tests use public names first: how many private ones each room's tests import, which may only become fewer."""

import ast
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent
PRIVATE = {
    "adaptation": 70,
    "alignment": 6,
    "cli": 8,
    "corpus": 25,
    "docs": 3,
    "dynamics": 6,
    "engine": 38,
    "evidence": 38,
    "explorer": 16,
    "findings": 20,
    "flow": 4,
    "foundation": 7,
    "heads": 16,
    "models": 6,
    "objectives": 8,
    "over_training": 15,
    "probing": 46,
    "pruning": 1,
    "report": 183,
    "representations": 40,
    "retrieval": 4,
    "studies": 14,
    "training": 1,
}
"""Imported names by room. A second implementation must see the inside; all else asks for a public name."""


def test_no_room_imports_more_private_names():
    found = Counter(room for path in TESTS.rglob("*.py") for room in _private(path))
    assert dict(found) == PRIVATE, "import public names; where there are fewer private ones now, write that here"


def _private(path: Path) -> list[str]:
    """The room of the tests, once for each private name that a file imports."""
    imports = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
    names = [f"{node.module}.{alias.name}" for node in imports for alias in node.names if not node.level]
    inside = [name for name in names if name.startswith("infoflow.") and "._" in name]
    return [path.relative_to(TESTS).parts[0]] * len(inside)
