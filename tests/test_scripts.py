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


@pytest.mark.parametrize(
    "script", [script for script in SCRIPTS if 'add_argument("--set"' in (ROOT / script).read_text("utf-8")]
)
def test_settings_given_twice_add_up(script):
    calls = [node for node in ast.walk(ast.parse((ROOT / script).read_text("utf-8"))) if isinstance(node, ast.Call)]
    options = [call for call in calls if any(isinstance(a, ast.Constant) and a.value == "--set" for a in call.args)]
    for option in options:  # with `nargs` alone the last one would win, and the others be lost without a word
        given = {keyword.arg: ast.literal_eval(keyword.value) for keyword in option.keywords}
        assert given["action"] == "extend"
