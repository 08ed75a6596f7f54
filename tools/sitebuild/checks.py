"""How a measure was checked: the tests that name it, told by their own names."""

import ast
import re
from functools import cache
from pathlib import Path

MOST = 14  # sentences on one page


@cache
def _tests(folder: Path) -> list[tuple[str, str, str]]:
    """File, name and source of every test."""
    found = []
    for path in sorted(folder.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                text = ast.get_source_segment(source, node) or ""
                found.append((path.relative_to(folder).as_posix(), node.name, text))
    return found


def told(folder: Path, names: list[str]) -> str:
    """The tests that use one of `names`, by file; those that compare with a second implementation first."""
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b")
    found = [(file, name) for file, name, text in _tests(folder) if pattern.search(text)]
    if not found:
        return "No test names it alone; it is covered by those of the whole room.\n"
    found.sort(key=lambda test: not re.search(r"agree|definition|paper|reference|equal|same_as|by_hand|slow", test[1]))
    lines = [f"- {_sentence(name)} (`{file}`)" for file, name in found[:MOST]]
    more = [f"- and {len(found) - MOST} more."] if len(found) > MOST else []
    head = "Each sentence is the name of a test that runs on every change:"
    return "\n".join([head, "", *lines, *more]) + "\n"


def _sentence(name: str) -> str:
    return name.removeprefix("test_").replace("_", " ").capitalize()
