"""Tests ask for public names. Which files look inside, and why: these and no others."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent

INSIDE = {
    "adaptation": "depths",
    "corpus": "grammar split",
    "dynamics": "packing",
    "engine": "following joining local lost_studies stage_lock",
    "evidence": "evidence_flow evidence_heads",
    "explorer": "asking.py",
    "findings": "scaling",
    "heads": "forward_relevance",
    "lenses": "lens_measure",
    "models": "fast_linear",
    "over_training": "translation_stages",
    "probing": "attention_probe batched codelength probe_scores structural_probe",
    "report": "drawn.py",
    "representations": "block_similarity discretize influence information_measure within_tokens",
    "studies": "retrieval_stages retrieval_text",
}
"""A second implementation, a published value or a property of one inner step; a helper of the folder's tests; a failure
that only the inside can have."""
AT_MOST = 30


def test_no_other_file_looks_inside():
    listed = _named(INSIDE)
    found = {path.relative_to(TESTS).as_posix() for path in TESTS.rglob("*.py") if _looks_inside(path)}
    assert len(listed) == len(set(listed)) <= AT_MOST
    assert found - {*listed} == set(), "import public names, or say in this list why the inside is needed"
    assert {*listed} - found == set(), "these import public names alone now: take them off the list"


def _named(files: dict[str, str]) -> list[str]:
    return [
        f"{room}/{name if name.endswith('.py') else f'test_{name}.py'}"
        for room, names in files.items()
        for name in names.split()
    ]


def _looks_inside(path: Path) -> bool:
    """Whether a file imports a private name; those in texts of programs do not count."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and not node.level:
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return any(re.match(r"infoflow\..*\b_(?!_)|infoflow\._(?!_)", name) for name in names)
