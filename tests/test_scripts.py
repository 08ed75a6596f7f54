"""Scripts of experiments and benchmarks import what there is: a moved name must not wait for their next run."""

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SCRIPTS = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("experiments", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
)


def imported(script: str) -> list[tuple[str, str]]:
    """The names that a script takes from infoflow, at its head and within its functions: (module, name)."""
    tree = ast.parse((ROOT / script).read_text(encoding="utf-8"))
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return [(node.module, a.name) for node in froms if node.module.split(".")[0] == "infoflow" for a in node.names]


def test_their_imports_are_seen():
    assert sum(len(imported(script)) for script in SCRIPTS) > 100


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_it_imports_is_there(script):
    for module, name in imported(script):
        found = importlib.import_module(module)
        if not hasattr(found, name):
            importlib.import_module(f"{module}.{name}")
