"""Claims in a file of the user's."""

from pathlib import Path

import pytest

from infoflow import UserError
from infoflow.findings import evaluate, load_claims
from infoflow.results import Column

CLAIM = """
from infoflow.findings import MASKED, Control, Finding, Table, exceeds, untrained

READS = {"input": Table("mutual_information", MASKED).where(side="input", regime="clean").by("layer")}


def test(curves):
    rise = curves["input"][:, -1:] - curves["input"].min(axis=1, keepdims=True)
    return [exceeds("last layer above the lowest", rise, 0.0, "nats")]


FINDING = Finding(
    id="mine:1", claim="A masked LM regains its input.", source="a guess", published="no number",
    statistic="last layer less lowest", reads=READS, test=test,
    controls=(Control(name="untrained model", reads=untrained(READS)),), learned=(MASKED,), minimum_seeds=1,
)
"""


READ = ("mutual_information", "task_scores")
# Types are checked when a test makes a claim; in the user's hands they are not.
CHANGED = CLAIM.replace("{", "{{").replace("}", "}}") + '\nobject.__setattr__(FINDING, "{}", {})\n'


@pytest.fixture
def claim_file(tmp_path):
    def written(text=CLAIM):
        path = tmp_path / "my_claims.py"
        path.write_text(text)
        return path

    return written


def test_a_claim_of_ones_own_is_judged_beside_those_of_the_package(make_study, claim_file, tmp_path, monkeypatch):
    from infoflow.findings import FINDINGS
    from infoflow.results import RunFolder, TableSchema
    from infoflow.studies import check_findings

    monkeypatch.setattr("infoflow.studies._run.write_report", lambda run: None)
    tables = {name: frame for name, frame in make_study().tables().items() if name in READ}
    folder = RunFolder(tmp_path / "run")
    folder.update(kind="study")
    for name, frame in tables.items():
        folder.tables.write(frame, _schema(name, frame, TableSchema))
    frame = check_findings(folder.path, claim_file()).findings
    assert set(frame["id"]) == {*FINDINGS, "mine:1"}
    row = frame[frame["id"] == "mine:1"].iloc[0]
    assert row["verdict"] == "holds", row["reason"]
    assert row["effect"] == pytest.approx(5.10 - 4.935, abs=0.01)  # of the tables of this study
    assert "mine:1" not in set(check_findings(folder.path).findings["id"])


def test_the_test_of_the_file_decides(make_study, claim_file):
    claims = load_claims(claim_file(CLAIM.replace('0.0, "nats"', '0.5, "nats"')))
    assert evaluate(make_study().tables(), claims)["verdict"].tolist() == ["fails"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "contains no claim"),
        ("import nothing_like_this", "line 1: ModuleNotFoundError"),
        ("x = 1\ny = (", "line 2: SyntaxError"),
        ("x = 1\nimport sys; sys.exit()", "line 2: SystemExit"),
        ("raise BaseException('odd')", "line 1: BaseException: odd"),
        ("class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd", "line 3: Odd"),
        (f"raise ValueError('{'x' * 9000}')", "ValueError: x+…x+"),
        (CLAIM.replace("mine:1", "dynamics:V3"), "dynamics:V3 .* is one of the package"),
        (CLAIM.replace("mine:1", "mine"), "must be SECTION:NUMBER"),
        (CHANGED.format("id", "3"), "must be SECTION:NUMBER"),
        (CHANGED.format("reads", "None"), "mine:1 .* reads must name readings"),
        (CHANGED.format("reads", "{'x': 3}"), "reads must name readings"),
        (CHANGED.format("learned", "('x',)"), "learned must be a tuple of objectives"),
        (CHANGED.format("controls", "[3]"), "controls must be a tuple"),
        (CHANGED.format("test", "None"), "test must be a function"),
        (CHANGED.format("minimum_seeds", "-1"), "minimum_seeds must be"),
        (CHANGED.format("uncontrolled", "True"), "uncontrolled must be text"),
        (CHANGED.format("claim", "3"), "claim must be text"),
        ("from infoflow.findings import FINDINGS\nONE = FINDINGS['dynamics:V3']", "contains no claim"),
    ],
)
def test_files_without_claims_are_refused(claim_file, text, message):
    with pytest.raises(UserError, match=message):
        load_claims(claim_file(text))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('curves["input"][:, -1:]', 'curves["inputs"][:, -1:]', "test of mine:1 .* raised KeyError.*input"),
        ("return [exceeds", "return exceeds", "must return a list of conditions"),
        (", rise, 0.0", ", rise[:3], 0.0", "must keep the .* rows"),
        ("return [exceeds", "raise SystemExit; return [exceeds", r"test of mine:1 .* raised SystemExit\."),
        ('return [exceeds("last layer above the lowest", rise, 0.0, "nats")]', "return []", "must return a list"),
    ],
)
def test_a_test_that_fails_names_its_file(make_study, claim_file, old, new, message):
    text = CLAIM.replace(old, new)
    text = text.replace('0.0, "nats")]', '0.0, "nats")') if new == "return exceeds" else text
    claims = load_claims(claim_file(text))
    with pytest.raises(UserError, match=message):
        evaluate(make_study().tables(), claims)


def test_a_file_that_is_none_is_named(tmp_path):
    with pytest.raises(UserError, match="There is no file"):
        load_claims(tmp_path / "no.py")
    with pytest.raises(UserError, match=r"must end in \.py"):
        load_claims(tmp_path)


def _schema(name, frame, schema):
    kinds = {"b": "bool", "i": "int64", "f": "float64"}

    def dtype(column):
        return "list<float64>" if column == "replicates" else kinds.get(frame[column].to_numpy().dtype.kind, "string")

    columns = tuple(Column(name=str(c), dtype=dtype(c), unit="", description="of the test") for c in frame.columns)
    return schema(name=name, version=1, description="Of the test.", columns=columns)


def test_a_test_that_changes_the_folder_changes_it_for_itself(make_study, claim_file):
    text = "import os\nos.chdir('/')\n" + CLAIM.replace("    return [exceeds", "    os.chdir('/')\n    return [exceeds")
    here = Path.cwd()
    assert evaluate(make_study().tables(), load_claims(claim_file(text)))["verdict"].tolist() == ["holds"]
    assert Path.cwd() == here
