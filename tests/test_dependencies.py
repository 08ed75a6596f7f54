"""What the package imports is what `pip install infoflow` brings: a tool of the tests must not be needed to run."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]
OPTIONAL = {"bm25s", "cryptography", "gguf", "h11", "faiss", "openTSNE", "spacy", "starlette", "torchao", "uvicorn"}
NOTEBOOK = {"IPython"}  # imported in notebooks alone, where it is


def _imported() -> dict[str, Path]:
    """Top-level packages that the source imports anywhere, with one file that does."""
    found: dict[str, Path] = {}
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            found |= {name.split(".")[0]: path for name in names}
    return {
        name: path
        for name, path in found.items()
        if name not in sys.stdlib_module_names | {"infoflow"} | OPTIONAL | NOTEBOOK
    }


def test_every_import_is_a_declared_dependency():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {_normal(re.split(r"[<>=\[; ]", line)[0]) for line in project["dependencies"]}
    distributions = packages_distributions()
    undeclared = {
        f"{name} in {path.relative_to(ROOT)}"
        for name, path in _imported().items()
        if not declared & {_normal(distribution) for distribution in distributions.get(name, [name])}
    }
    assert not undeclared


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
