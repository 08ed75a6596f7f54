"""Reports of runs whose run.json or tables are damaged: one message, or a report that says what it leaves out."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest

from infoflow.findings import evaluate
from infoflow.foundation import UserError
from infoflow.report import write_report
from infoflow.results import RunFolder
from infoflow.studies import Run

pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path):
    from synthetic_run import make_analysis

    return make_analysis(tmp_path / "run")


def rewrite(run, name, frame):
    """The table with other contents and the description that it had; without the checksum, as by an earlier version."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = run.path / "tables" / f"{name}.parquet"
    notes = pq.read_schema(path).metadata
    table = pa.Table.from_pandas(frame, preserve_index=False)
    kept = {key: value for key, value in notes.items() if key in (b"infoflow.schema", b"infoflow.provenance")}
    pq.write_table(table.replace_schema_metadata({**(table.schema.metadata or {}), **kept}), path)


def fresh(run):
    return RunFolder(run.path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop(columns="value"), "it has no column value"),
        (lambda frame: frame.assign(value="high"), "its column value must be of type float64. Got"),
        (lambda frame: frame.assign(layer=frame["layer"].astype(float)), "its column layer must be of type int64"),
        (lambda frame: frame.assign(layer=10**9), r"its column layer must lie in -2..100,000. Got 1000000000"),
        (lambda frame: frame.assign(layer=-7), r"its column layer must lie in .* Got -7"),
        (lambda frame: frame.assign(layer=pd.array([None] * len(frame), dtype="Int64")), "in every row. 6 have none"),
        (lambda frame: frame.assign(model=1), "its column model must be of type string"),
        (lambda frame: frame.assign(replicates=1.0), "its column replicates must be of type list<float64>"),
    ],
)
def test_a_damaged_table_is_named(run, change, message):
    rewrite(run, "layer_distance", change(run.tables["layer_distance"]))
    with pytest.raises(UserError, match=message) as caught:
        write_report(fresh(run))
    assert "layer_distance.parquet is damaged" in str(caught.value)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"models": 3}, "models must be a list of objects. Got 3"),
        ({"models": [3]}, "models must be a list of objects"),
        ({"kind": None}, "kind must be text. Got null"),
        ({"title": ["x"]}, "title must be text"),
        ({"warnings": "x"}, "warnings must be a list of texts"),
        ({"timings": {"a": "b"}}, "timings must be an object of seconds"),
        ({"seconds": "long"}, "seconds must be a number"),
        ({"plan": []}, "plan must be an object"),
        ({"version": "one"}, "version must be a whole number"),
        ({"failures": [1]}, "failures must be a list of objects"),
    ],
)
def test_a_damaged_run_json_is_named(run, entries, message):
    path = run.path / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))
    with pytest.raises(UserError, match=r"run\.json is damaged: " + message.replace(".", r"\.")):
        write_report(fresh(run))


@pytest.mark.parametrize("content", ["[" * 100_000, '{"version": ' + "9" * 5000 + "}"])
def test_a_run_json_that_cannot_be_read(run, content):
    (run.path / "run.json").write_text(content)
    with pytest.raises(UserError, match="is damaged"):
        fresh(run).read()


@pytest.mark.parametrize(
    "entries",
    [
        {"corpus": {"name": "x", "sentences": "many", "split": 3}},
        {"corpus": {"split": {"leakage": 3}}},
        {"provenance": {"packages": 3}},
        {"models": [{"name": None}, {"parameters": "x", "seconds": []}, {}]},
        {"unknown": {"key": 1}},
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_odd_entries_of_run_json_leave_a_report(run, entries):
    from synthetic_run import with_tables

    with_tables(run, "layer_distance")
    run.update(**entries)
    assert write_report(fresh(run)).stat().st_size > 10_000


@pytest.mark.parametrize("column", ["value", "low", "count", "baseline"])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_values_that_are_no_numbers_leave_a_story(run, column, value):
    from drawn import tell

    for name in ("layer_distance", "mutual_information"):
        frame = run.tables[name]
        if column == "count":
            value = 2**62 if value == 1e300 else 0
        rewrite(run, name, frame.assign(**{column: value}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert tell(fresh(run)).sections


def test_a_section_that_cannot_be_told_is_left_out_and_said_to_be(run):
    """A table as another version wrote it: nothing is wrong with it but what it lacks."""
    from synthetic_run import with_tables, write_again

    with_tables(run, "layer_distance", "identity_neighbours")
    stored = run.tables.stored("layer_distance")
    write_again(run, stored.frame.drop(columns="width"), stored.schema)
    with pytest.warns(UserWarning, match="leaves out the section on change: .*no width"):
        page = write_report(fresh(run)).read_text(encoding="utf-8")
    assert "The report leaves out the section on change" in page
    assert 'id="identity"' in page
    assert 'id="change"' not in page


def test_failures_with_keys_of_another_version(run):
    failure = {"table": "lens", "model": "bert", "reason": "no", "later": 1}
    run.update(failures=[failure])
    assert [found.table for found in Run.open(run.path).failures] == ["lens"]
    run.update(failures=[{"table": "lens"}])
    with pytest.raises(UserError, match=r"run\.json is damaged: each of its failures must have"):
        _ = Run.open(run.path).failures


def test_findings_on_damaged_tables_are_not_testable(run):
    tables = {name: run.tables[name].assign(seed="x", objective=None) for name in run.tables}
    assert set(evaluate(tables)["verdict"]) == {"not testable here"}
