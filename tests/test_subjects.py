"""Subjects can be removed: each in turn, with those that import it; the rest works as before."""

import json
import pkgutil
import tomllib
from functools import partial
from pathlib import Path

import pytest
from support.plain import run_plain

import infoflow.subjects
from infoflow.findings import FINDINGS, Finding

ROOT = Path(__file__).parents[1]
SUBJECTS = [one.name for one in pkgutil.iter_modules(infoflow.subjects.__path__)]
PARTS = {"measures", "tables", "settings", "stages", "claims", "figures", "command", "view", "templates"}
OWN = {"explorer": {"server"}, "retrieval": {"models", "objectives", "training"}}
"""Further parts: the explorer's server; models of readers and retrievers, their objectives, and their training."""

REST = """
import importlib, json, pkgutil, sys, warnings

warnings.simplefilter("ignore")
import pandas as pd
import infoflow, infoflow.subjects
from infoflow.cli import run
from infoflow.findings import FINDINGS
from infoflow.foundation import SilentDisplay, use_display
from infoflow.report._story import sections
from infoflow.results import RunFolder, Recipe
from infoflow.studies import StudyPlan, graph
from infoflow.studies.stages import stages

for module in pkgutil.walk_packages(infoflow.subjects.__path__, "infoflow.subjects."):
    importlib.import_module(module.name)
assert run(["--help"]) == 0
out, plan = OUT, StudyPlan.from_json(PLAN)
assert len(graph(plan, out)) > 2
assert len(sections()) > 2
with use_display(SilentDisplay()):
    trained = infoflow.train("masked-lm", plan, out=out + "/trained")
    found = infoflow.analyze([str(trained.folder)], corpus="grammar:200", sentences=60, out=out + "/analysis",
                             only=("identity_neighbours", "head_confidence"))
    print(json.dumps({"claims": list(FINDINGS), "report": (found.path / "report.html").stat().st_size}))
"""
OF_OTHERS = ("altair", "cyclopts", "datasets", "jinja2", "pandas", "rich.console", "sacrebleu", "starlette", "uvicorn")
"""Packages that infoflow imports: once for all subjects."""
PLAN = {
    "objectives": ["masked-lm", "causal-lm"],
    "corpus": {"name": "grammar:200", "vocabulary": 120},
    "model": {"width": 16, "layers": 2, "heads": 2, "feedforward": 32},
    "training": {"updates": 4},
}


def _importers() -> dict[str, set[str]]:
    """The subjects that import each subject, as the contract of import-linter allows."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (allowed,) = [one["ignore_imports"] for one in contracts if one["type"] == "independence"]
    importers: dict[str, set[str]] = {subject: set() for subject in SUBJECTS}
    for line in allowed:
        importer, imported = (side.split(".")[2] for side in line.split(" -> "))
        importers[imported].add(importer)
    return importers


def _with_importers(subject: str) -> set[str]:
    importers, gone = _importers(), {subject}
    while more := {one for each in gone for one in importers[each]} - gone:
        gone |= more
    return gone


def test_subjects_import_each_other_along_at_most_ten_edges():
    assert sum(map(len, _importers().values())) <= 10


@pytest.mark.parametrize("subject", SUBJECTS)
def test_subjects_have_the_same_parts_and_a_page(subject):
    folder = ROOT / "src" / "infoflow" / "subjects" / subject
    found = {path.stem for path in folder.iterdir() if not path.name.startswith(("_", "README"))}
    assert found <= PARTS | OWN.get(subject, set())
    page = (folder / "README.md").read_text(encoding="utf-8")
    assert page.startswith("# ")
    assert len(page) < 4000


@pytest.mark.slow
@pytest.mark.parametrize("subject", [*SUBJECTS, "all"])
def test_without_a_subject_the_rest_works(subject, tmp_path):
    """All other modules are imported; help, a plan's graph, a training, an analysis and its report work."""
    gone = {*SUBJECTS} if subject == "all" else _with_importers(subject)
    _link_package(tmp_path / "src" / "infoflow", gone)
    head = (
        f"import sys\nsys.path.insert(0, {str(tmp_path / 'src')!r})\nOUT, PLAN = {str(tmp_path / 'out')!r}, {PLAN!r}\n"
    )
    rest = json.loads(run_plain(head + REST, tmp_path, *OF_OTHERS).splitlines()[-1])
    kept = {claim.id for claim in FINDINGS.values() if _subject_of(claim) not in gone}
    assert {*rest["claims"]} == kept
    assert rest["report"] > 100_000


def _link_package(folder: Path, gone: set[str]) -> None:
    """The package without some subjects; what stays is linked, so that it is compiled once for all tests."""
    package = ROOT / "src" / "infoflow"
    (folder / "subjects").mkdir(parents=True)
    for source in (*package.iterdir(), *(package / "subjects").iterdir()):
        if source.name not in {"subjects", "__pycache__", *gone}:
            (folder / source.relative_to(package)).symlink_to(source)


def _subject_of(claim: Finding) -> str:
    test = claim.test.func if isinstance(claim.test, partial) else claim.test
    return test.__module__.split(".")[2] if test.__module__.startswith("infoflow.subjects.") else ""


ADDED = {
    "measures.py": """
from infoflow.flow import SampleMeasure
from infoflow.results import TableSchema

class Mine(SampleMeasure):
    table = TableSchema(name="mine", version=1, description="One number.", columns=())
    by_default = True

    def compute(self, sample):
        raise NotImplementedError

MEASURES = (Mine, Mine)
""",
    "claims.py": """
from dataclasses import replace
from infoflow.findings.claims import representations_bottom_up_v1_to_v7 as published

FIRST = replace(published.v1, id="mine:M-1")
""",
}
ASKED = """
import warnings

warnings.simplefilter("ignore")
import infoflow.subjects
infoflow.subjects.__path__.append(FOLDER)
from infoflow.findings import FINDINGS
from infoflow.studies import AnalysisPlan, standard_measures
assert "mine:M-1" in FINDINGS
for plan in (AnalysisPlan(), AnalysisPlan(tables=("mine",))):
    assert [measure.name for measure in standard_measures(plan)].count("mine") == 1
"""


def test_a_subject_of_single_modules_adds_a_claim_and_a_measure_that_is_measured_once(tmp_path):
    folder = tmp_path / "subjects" / "mine"
    folder.mkdir(parents=True)
    for name, text in {"__init__.py": '"""Mine."""', **ADDED}.items():
        (folder / name).write_text(text)
    run_plain(f"FOLDER = {str(folder.parent)!r}\n{ASKED}", tmp_path)
