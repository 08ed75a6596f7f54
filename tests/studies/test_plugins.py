"""`[plugins]` of a plan: the user's own measures, objectives and claims, in every stage, and never run unnamed."""

import json
import shutil
from pathlib import Path

import pytest
from support.undrawn import undrawn

from infoflow.findings import FINDINGS
from infoflow.foundation import UserError
from infoflow.objectives import OBJECTIVES
from infoflow.studies import Run, StudyPlan, check_findings, graph, study

MEASURES = """
import infoflow
from pathlib import Path

Path(__file__).with_suffix(".ran").touch()
norm = infoflow.measure_of(lambda states: states.norm(dim=-1), name="norm", unit="length")
"""
OBJECTIVE = """
from dataclasses import dataclass
from infoflow.objectives import CausalLM

@dataclass(frozen=True, kw_only=True, slots=True)
class Mine(CausalLM):
    name = "mine-lm"
    term_weights = {"mine-lm": 1.0}
    rate: float = 0.5

    def corrupt(self, example, generator, vocabulary):
        return CausalLM.corrupt(self, example, generator, vocabulary)
"""
CLAIMS = """
from infoflow.findings import Control, Finding, Table, exceeds, untrained
from infoflow.results import Spec

READS = {"norm": Table("norm", Spec("mine-lm")).by("layer")}
FINDING = Finding(
    id="mine:1", claim="Longer at the top.", source="a guess", published="no number", statistic="top less bottom",
    reads=READS, test=lambda curves: [exceeds("rise", curves["norm"][:, -1:] - curves["norm"][:, :1], 0.0, "length")],
    controls=(Control(name="untrained model", reads=untrained(READS)),), learned=(), minimum_seeds=1,
)
"""
PLAN = """
objectives = ["causal-lm", "mine-lm"]
[plugins]
measures = "code/norms.py"
objectives = "code/mine.py"
claims = "code/claims.py"
[corpus]
name = "grammar:400"
vocabulary = 120
validation = 0.1
test = 0.2
[model]
width = 16
layers = 2
heads = 2
feedforward = 32
[training]
updates = 2
batch_tokens = 256
[analysis]
tables = ["task_scores"]
"""


@pytest.fixture(autouse=True)
def own_names_are_removed():
    before = dict(OBJECTIVES)
    yield
    OBJECTIVES.clear()
    OBJECTIVES.update(before)


@pytest.fixture
def plan(tmp_path, monkeypatch) -> Path:
    """A plan with its code in a folder beside it, read from elsewhere."""
    folder = tmp_path / "project"
    (folder / "code").mkdir(parents=True)
    for name, text in {"norms.py": MEASURES, "mine.py": OBJECTIVE, "claims.py": CLAIMS}.items():
        (folder / "code" / name).write_text(text)
    (folder / "study.toml").write_text(PLAN)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return folder / "study.toml"


def keys(plan: Path, out: Path) -> dict[str, str]:
    return {stage.label: stage.key for stage in graph(StudyPlan.load(plan), out)}


@pytest.mark.slow
def test_a_study_with_all_three(plan, tmp_path):
    """In processes of its own; the own measure reads every objective and its untrained control."""
    with undrawn():
        run = study(plan, tmp_path / "run", num_processes=2)
    rows = run.tables["norm"]
    assert {*zip(rows["objective"], rows["trained"], strict=True)} == {
        (name, trained) for name in ("causal-lm", "mine-lm") for trained in (True, False)
    }
    assert set(run.findings["id"]) == {*FINDINGS, "mine:1"}
    assert run.findings.set_index("id").loc["mine:1", "effect"] is not None
    _nobody_else_runs_it(run, plan, tmp_path)


def _nobody_else_runs_it(run: Run, plan: Path, tmp_path: Path) -> None:
    """Who gets the folder reads it without its code, which lies elsewhere by now."""
    shutil.copytree(plan.parent / "code", tmp_path / "theirs")
    manifest = json.loads((run.path / "run.json").read_text())
    for kind, name in (("measures", "norms.py"), ("objectives", "mine.py"), ("claims", "claims.py")):
        manifest["plan"]["plugins"][kind] = str(tmp_path / "theirs" / name)
    (run.path / "run.json").write_text(json.dumps(manifest))
    ran = tmp_path / "theirs" / "norms.ran"
    ran.unlink(missing_ok=True)
    for reading in (lambda: Run.open(run.path).stages, Run.open(run.path).so_far):
        with pytest.raises(UserError, match=r"executed only if you ask.*\n.*--own-code"):
            reading()
    page = Run.open(run.path).report()
    assert "What do your own measures find?" in page.read_text(encoding="utf-8")
    with pytest.warns(UserWarning, match="their code is run only with --claims FILE"):
        judged = check_findings(run.path)
    assert "mine:1" not in set(judged.findings["id"])
    assert not ran.exists()


def test_a_changed_file_changes_the_stages_that_it_affects_and_no_others(plan, tmp_path):
    first = keys(plan, tmp_path / "run")
    assert keys(plan, tmp_path / "run") == first
    (plan.parent / "code" / "norms.py").write_text(MEASURES + "# another\n")
    second = keys(plan, tmp_path / "run")
    changed = {label.split()[0] for label in first if first[label] != second[label]}
    assert changed == {"measure", "check"}
    (plan.parent / "code" / "mine.py").write_text(OBJECTIVE + "# another\n")
    third = keys(plan, tmp_path / "run")
    again = {label for label in first if second[label] != third[label]}
    assert "train mine-lm/seed-0" in again
    assert not [label for label in again if "causal-lm" in label and "mine-lm" not in label]


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("norms.py", "import infoflow\n1 / 0\n", r"norms.py cannot be run: line 2: ZeroDivisionError"),
        ("norms.py", "x = 1\n", "contains no measure"),
        ("mine.py", "x = 1\n", "holds no objective"),
        ("mine.py", OBJECTIVE.replace('"mine-lm"', '"masked-lm"'), "the name masked-lm is taken"),
        ("mine.py", OBJECTIVE.replace("return CausalLM", "return causallm"), r"mine.py fails .*: line 12: NameError"),
        ("mine.py", OBJECTIVE.replace('{"mine-lm": 1.0}', '{"loss": 1.0}'), "must be those of term_weights, loss. Got"),
        ("mine.py", OBJECTIVE.replace("rate: float = 0.5", "rate: float"), "its option rate needs a default"),
        ("mine.py", OBJECTIVE.replace("@dataclass(frozen=True, kw_only=True, slots=True)", ""), "must be a dataclass"),
        ("claims.py", CLAIMS.replace("mine:1", "mine"), "must be SECTION:NUMBER"),
    ],
)
def test_mistakes_are_reported_before_any_work(plan, tmp_path, kind, text, message):
    (plan.parent / "code" / kind).write_text(text)
    with pytest.raises(UserError, match=message):
        study(plan, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert "mine-lm" not in OBJECTIVES or kind == "claims.py"


def test_code_in_an_option_replaces_that_of_the_plan(plan):
    other = plan.parent / "code" / "others.py"
    other.write_text(MEASURES)
    assert StudyPlan.load(plan, measures=other).plugins.measures == str(other)
    assert StudyPlan.load("quick", claims=plan.parent / "code" / "claims.py").plugins.claims.endswith("claims.py")


def test_an_installed_package_offers_its_code_by_name(plan, tmp_path, monkeypatch):
    package = tmp_path / "site" / "their_package"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "norms.py").write_text(MEASURES)
    facts = tmp_path / "site" / "their_package-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[infoflow.measures]\nnorms = their_package.norms\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    plan.write_text(PLAN.replace("code/norms.py", "norms"))
    found = StudyPlan.load(plan).plugins
    assert found.measures == "norms"
    with pytest.raises(UserError, match=r"Got normz, .*\(installed: norms\)"):
        StudyPlan.load("quick", measures="normz")
