"""Tables on disk: round trip, description, damage."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infoflow.foundation import UserError
from infoflow.results import Column, TableSchema, estimate_columns, read_table, write_table


def make_schema():
    return TableSchema(
        name="head_entropy",
        version=3,
        description="Entropy of attention",
        columns=(
            Column(name="stack", dtype="string", unit="", description="encoder or decoder"),
            Column(name="layer", dtype="int64", unit="", description="block, from 0"),
            Column(name="causal", dtype="bool", unit="", description="whether the stack is causal"),
            *estimate_columns("nats", value="entropy", baseline="uniform attention"),
        ),
    )


def make_frame(num=3, replicates=4):
    return pd.DataFrame(
        {
            "layer": range(num),
            "stack": "encoder",
            "causal": False,
            "value": np.linspace(0.1, 1.3, num),
            "low": 0.0,
            "high": 2.0,
            "baseline": np.nan,
            "count": 1000,
            "replicates": [list(np.arange(replicates) + row / 3) for row in range(num)],
        }
    )


def test_round_trip(tmp_path):
    schema, path = make_schema(), tmp_path / "tables" / "head_entropy.parquet"
    assert write_table(path, make_frame(), schema, {"model": "x", "seed": 3}) == path
    frame, stored_schema, origin = read_table(path)
    assert stored_schema == schema
    assert origin == {"model": "x", "seed": 3}
    assert list(frame.columns) == schema.column_names
    assert frame["value"].tolist() == make_frame()["value"].tolist()  # bit for bit
    assert [list(row) for row in frame["replicates"]] == make_frame()["replicates"].tolist()
    assert frame["baseline"].isna().all()
    again = read_table(write_table(path, frame, schema)).frame
    pd.testing.assert_frame_equal(again, frame)


def test_provenance_is_this_process_unless_given(tmp_path):
    stored = read_table(write_table(tmp_path / "t.parquet", make_frame(), make_schema()))
    assert {"infoflow", "time"} <= stored.provenance.keys()
    assert "command" not in stored.provenance  # it names the user's files


@pytest.mark.parametrize("num", [0, 1])
def test_empty_tables_and_lists(tmp_path, num):
    stored = read_table(write_table(tmp_path / "t.parquet", make_frame(num, replicates=0), make_schema()))
    assert len(stored.frame) == num
    assert list(stored.frame.columns) == make_schema().column_names


def test_columns_are_ordered_and_typed(tmp_path):
    shuffled = make_frame().sample(frac=1, axis=1, random_state=0).astype({"layer": "int32", "low": "float32"})
    stored = read_table(write_table(tmp_path / "t.parquet", shuffled, make_schema())).frame
    assert list(stored.columns) == make_schema().column_names
    assert stored["layer"].dtype == np.int64
    assert stored["low"].dtype == np.float64
    assert stored["causal"].dtype == bool


def test_measure_and_schema_that_disagree_are_our_bug():
    schema = make_schema()
    with pytest.raises(AssertionError, match=r"head_entropy: missing columns \['low'\]"):
        schema.conform(make_frame().drop(columns="low"))
    with pytest.raises(AssertionError, match=r"head_entropy: undocumented columns \['extra'\]"):
        schema.conform(make_frame().assign(extra=1))


def test_schema_with_keys_and_as_json():
    schema = make_schema().with_keys(Column(name="model", dtype="string", unit="", description="which model"))
    assert schema.column_names[:2] == ["model", "stack"]
    assert TableSchema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
    units = {column.name: column.unit for column in schema.columns}
    assert (units["value"], units["replicates"], units["count"]) == ("nats", "nats", "occurrences")
    assert all(column.description for column in schema.columns)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=20), number=st.floats(width=64))
def test_any_text_and_number_survive(tmp_path, text, number):
    frame = make_frame(1).assign(stack=text, value=number)
    stored = read_table(write_table(tmp_path / "t.parquet", frame, make_schema())).frame
    assert stored["stack"][0] == text
    np.testing.assert_equal(stored["value"][0], number)


def test_absent_table(tmp_path):
    with pytest.raises(UserError, match=r"There is no table .*none\.parquet\. Run the analysis first"):
        read_table(tmp_path / "none.parquet")


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "flipped"])
def test_damaged_table(tmp_path, damage):
    path = write_table(tmp_path / "t.parquet", make_frame(), make_schema())
    content = path.read_bytes()
    middle = len(content) // 2
    flipped = content[:-200] + bytes(255 - byte for byte in content[-200:-100]) + content[-100:]
    path.write_bytes({"cut": content[:middle], "empty": b"", "text": b"hello, world\n" * 9, "flipped": flipped}[damage])
    with pytest.raises(UserError, match=r"t\.parquet is not a readable Parquet table"):
        read_table(path)


def test_a_flipped_bit_in_a_number_is_noticed(tmp_path):
    path = write_table(tmp_path / "t.parquet", make_frame(3000).assign(value=np.arange(3000) / 7), make_schema())
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"t\.parquet is not a readable Parquet table"):
        read_table(path)


@pytest.mark.parametrize("bit", [1, 16, 128])
def test_a_flipped_bit_anywhere_gives_the_same_table_or_one_message(tmp_path, bit):
    """Also in names of columns, in the description and in Parquet's own notes, none of which a page's sum covers."""
    path = write_table(tmp_path / "t.parquet", make_frame(30), make_schema(), {"command": "x"})
    right, content, refused = read_table(path), path.read_bytes(), 0
    for place in range(bit % 39, len(content), 39):
        changed = bytearray(content)
        changed[place] ^= bit
        path.write_bytes(changed)
        try:
            found = read_table(path)
        except UserError:
            refused += 1
        else:
            pd.testing.assert_frame_equal(pd.DataFrame(found.frame), pd.DataFrame(right.frame))
            assert found[1:] == right[1:]
    assert refused > len(content) / 39 / 2


@pytest.mark.parametrize(
    "notes",
    [
        {"infoflow.schema": "{"},
        {"infoflow.schema": '{"name": "x", "columns": []}'},
        {"infoflow.schema": '{"name": "x", "version": 1, "description": "", "columns": [{"new_field": 1}]}'},
        {"infoflow.schema": '{"name": "x", "version": 1, "description": "", "columns": []}'},  # no provenance
    ],
)
def test_description_that_is_not_understood(tmp_path, notes):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"seed": [1, 2]}).replace_schema_metadata(notes)
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(
        UserError, match=r"t\.parquet describes its columns in a way that this version of infoflow does not understand"
    ):
        read_table(tmp_path / "t.parquet")


def test_foreign_parquet(tmp_path):
    make_frame().to_parquet(tmp_path / "other.parquet")
    with pytest.raises(UserError, match=r"other\.parquet was not written by infoflow"):
        read_table(tmp_path / "other.parquet")


WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from test_tables import make_frame, make_schema
from infoflow.results import write_table
number = 0
while True:
    number += 1
    write_table(sys.argv[1], make_frame(3000).assign(count=number), make_schema(), {})
    print(number, flush=True)
"""


@pytest.mark.slow
def test_kill_9_leaves_a_whole_table(tmp_path):
    path = tmp_path / "t.parquet"
    command = [sys.executable, "-c", WRITER, str(path), str(Path(__file__).parent)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout is not None
        for _ in range(2):
            writer.stdout.readline()
        time.sleep(0.01)
    finally:
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate()
    frame = read_table(path).frame
    assert len(frame) == 3000
    assert frame["count"].nunique() == 1
