"""The findings table: its form, and that nothing in the tables can break it."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infoflow.findings import FINDINGS, FINDINGS_TABLE, evaluate
from infoflow.results import read_table, write_table

from .groups import with_models

pytestmark = pytest.mark.slow

NEVER_TESTED = {"dynamics:V3"} | {  # by the tables of one study
    f"time:T{number}" for number in (3, 16, 19, 21)
}


def test_no_tables_at_all():
    frame = evaluate({})
    assert list(frame.columns) == FINDINGS_TABLE.column_names
    assert list(frame["id"]) == list(FINDINGS)
    assert set(frame["verdict"]) == {"not testable here"}
    assert frame[~frame["id"].isin(NEVER_TESTED)]["reason"].str.contains("is absent").all()


def _sources(finding: str) -> set[str]:
    return {source for reading in FINDINGS[finding].reads.values() for source in reading.sources}


def _told(tables) -> list[str]:
    """The findings that these tables suffice for; others have tests with tables of their own."""
    enough = [name for name in FINDINGS if _sources(name) and _sources(name) <= set(tables)]
    return [name for name in enough if with_models(FINDINGS[name], tables)]


def test_table_survives_writing(published, tmp_path):
    frame = evaluate(published)
    stored = read_table(write_table(tmp_path / "findings.parquet", frame, FINDINGS_TABLE)).frame
    assert list(stored["verdict"]) == list(frame["verdict"])
    assert [list(effects) for effects in stored["effects"]] == [list(effects) for effects in frame["effects"]]


def test_same_tables_give_the_same_findings(make_study):
    study = make_study(noise=0.05, between=0.05)
    first, second = evaluate(study.tables()), evaluate(study.tables())
    pd.testing.assert_frame_equal(first, second)


@pytest.mark.parametrize(
    "table", ["mutual_information", "layer_distance", "identity_neighbours", "model_distance", "head_positional"]
)
def test_absent_table_concerns_only_its_claims(published, table):
    told = _told(published)
    del published[table]
    for row in evaluate(published, [FINDINGS[name] for name in told]).itertuples():
        reads = _sources(row.id)
        assert (row.verdict == "not testable here") == (table in reads)
        assert (table in row.reason) == (table in reads)


def test_one_objective_only(make_study):
    """What analyzing a single model gives: no seeds, no controls, no other objective."""
    tables = make_study(seeds=(0,)).tables()
    del tables["model_distance"], tables["task_scores"], tables["alignment"]
    tables = {name: t[(t["objective"] == "masked-lm") & t["trained"]] for name, t in tables.items()}
    frame = evaluate(tables).set_index("id")
    assert set(frame["verdict"]) == {"not testable here"}
    assert "there is no causal LM" in frame.loc["representations:V-2", "reason"].lower().replace("lm", "LM")
    assert frame.loc["representations:V-3", "effect"] == pytest.approx(0.165)


def test_no_untrained_models_no_verdict(published):
    table = published["layer_distance"]
    published["layer_distance"] = table[table["trained"]]
    row = evaluate(published, [FINDINGS["representations:V-9"]]).iloc[0]
    assert row["verdict"] == "not testable here"
    assert row["reason"] == "No control was measured."
    assert "untrained models: not measured (layer_distance has no matching rows" in row["note"]


@pytest.mark.parametrize("replicates", [None, []])
def test_no_replicates_no_interval(published, replicates):
    table = published["layer_distance"]
    published["layer_distance"] = table.assign(replicates=[replicates] * len(table))
    row = evaluate(published, [FINDINGS["representations:V-9"]]).iloc[0]
    assert row["verdict"] == "not testable here"
    assert "no bootstrap replicates" in row["reason"]


def test_replicates_that_repeat_the_estimate_are_no_interval(make_study):
    """One seed and no bootstrap behind it: the numbers have no interval, and there is no verdict on them."""
    tables = make_study(seeds=(0,), noise=0.05).tables()
    claim = [FINDINGS["representations:V-3"]]
    sampled = evaluate(tables, claim).iloc[0]
    assert sampled["covers"] == "sentences"
    table = tables["mutual_information"]
    repeated = [np.full(len(row["replicates"]), row["value"]) for _, row in table.iterrows()]
    row = evaluate({**tables, "mutual_information": table.assign(replicates=repeated)}, claim).iloc[0]
    assert row["effect"] == pytest.approx(sampled["effect"])
    assert row["verdict"] == "not testable here"
    assert "they have no interval" in row["reason"]
    assert row["covers"] == ""
    assert np.isnan([row["low"], row["high"]]).all()


def test_types_of_stored_tables_are_read(published, tmp_path):
    """Parquet gives back pandas' own string type and arrays instead of lists."""
    stored = {}
    for name, table in published.items():
        table.to_parquet(tmp_path / name)
        text = [c for c in table.columns if pd.api.types.is_string_dtype(table[c])]
        stored[name] = pd.read_parquet(tmp_path / name).astype(dict.fromkeys(text, "string"))
    frame = evaluate(stored, [FINDINGS[name] for name in _told(published)])
    assert len(frame) > 30
    assert set(frame["verdict"]) == {"holds"}


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_partial_tables_never_raise(published_tables, data):
    tables = {}
    for name, table in published_tables.items():
        match data.draw(st.sampled_from(["whole", "absent", "rows", "column", "empty", "missing numbers"])):
            case "whole":
                tables[name] = table
            case "rows":
                tables[name] = table.sample(frac=data.draw(st.floats(0.05, 0.99)), random_state=0)
            case "column":
                tables[name] = table.drop(columns=data.draw(st.sampled_from(list(table.columns))))
            case "empty":
                tables[name] = table.iloc[:0]
            case "missing numbers":
                tables[name] = table.assign(value=table["value"].where(table.index % 7 != 0))
    frame = evaluate(tables)
    assert set(frame["verdict"]) <= {"holds", "fails", "undetermined", "not testable here"}
    assert frame["reason"].str.len().gt(0).all()


def test_a_ratio_to_nothing_decides_nothing(make_study):
    """A causal LM that changes nothing at all: a warning of the division would be an error here."""
    study = make_study()
    for side in ("input", "output"):
        study.information["causal-lm", "clean", side] = np.full(7, 2.0)
    row = evaluate(study.tables(), [FINDINGS["representations:V-5"]]).iloc[0]
    assert row["verdict"] == "undetermined"
