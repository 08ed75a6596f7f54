"""The folder that a run leaves."""

import dataclasses
import json
import shutil
from dataclasses import replace

import pandas as pd
import pytest

from infoflow.foundation import UserError
from infoflow.results import Column, RunFolder, TableSchema


@pytest.fixture
def schema():
    column = Column(name="seed", dtype="int64", unit="", description="which seed")
    return TableSchema(name="training_runs", version=1, description="one row per model", columns=(column,))


def test_new_run_is_empty(tmp_path):
    run = RunFolder(tmp_path / "run")
    assert run.read() == {}
    assert len(run.tables) == 0
    assert not (tmp_path / "run").exists()  # looking does not write
    assert run.models == tmp_path / "run" / "models"
    assert run.report == tmp_path / "run" / "report.html"


def test_entries_are_replaced_one_by_one(tmp_path):
    run = RunFolder(tmp_path)
    run.update(plan={"seeds": [1, 2]}, title="Étude")
    run.update(plan={"seeds": [3]}, timings={"train": 1.5})
    entries = RunFolder(tmp_path).read()
    assert entries.pop("id")
    assert entries == {"version": 1, "plan": {"seeds": [3]}, "title": "Étude", "timings": {"train": 1.5}}
    assert "Étude" in (tmp_path / "run.json").read_text(encoding="utf-8")  # for people to read


def test_existing_run(tmp_path):
    with pytest.raises(UserError, match=r"is not a run folder: it has no run\.json"):
        RunFolder.existing(tmp_path)
    RunFolder(tmp_path).update(plan={})
    assert RunFolder.existing(tmp_path).read()["plan"] == {}


@pytest.mark.parametrize("content", ['{"plan": ', "", "[1, 2]", "null"])
def test_damaged_manifest(tmp_path, content):
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(UserError, match=r"run\.json is damaged"):
        RunFolder(tmp_path).read()


def test_binary_manifest(tmp_path):
    (tmp_path / "run.json").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(UserError, match=r"run\.json is damaged"):
        RunFolder(tmp_path).read()


def test_run_of_a_newer_version(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"version": 99}))
    with pytest.raises(UserError, match="newer infoflow"):
        RunFolder(tmp_path).read()


def test_tables_by_name(tmp_path, schema):
    run = RunFolder(tmp_path)
    run.tables.write(pd.DataFrame({"seed": [1, 2]}), schema, {"from": "test"})
    (tmp_path / "tables" / ".half.parquet.x.partial").write_bytes(b"")
    (tmp_path / "tables" / ".hidden.parquet").write_bytes(b"")
    assert list(run.tables) == ["training_runs"]
    assert "training_runs" in run.tables
    assert run.tables["training_runs"]["seed"].tolist() == [1, 2]
    assert run.tables.stored("training_runs").provenance["from"] == "test"
    assert run.tables.get("absent") is None
    with pytest.raises(KeyError, match=r"no table training_run\. Did you mean training_runs\? Its tables: "):
        run.tables["training_run"]


def test_tables_of_another_run_are_left_out(tmp_path, schema):
    mine, other = (RunFolder(tmp_path / name) for name in ("mine", "other"))
    second = dataclasses.replace(schema, name="second")
    for run, seed in ((mine, 1), (other, 2)):
        run.update(kind="analyze")
        run.tables.write(pd.DataFrame({"seed": [seed]}), schema)
        run.tables.write(pd.DataFrame({"seed": [seed]}), second)
    moved = RunFolder(mine.path.rename(tmp_path / "moved"))
    assert list(moved.tables) == ["second", "training_runs"]  # a whole run may be moved and copied
    shutil.copy(other.path / "tables" / "second.parquet", moved.path / "tables")
    moved = RunFolder(moved.path)
    assert (list(moved.tables), moved.tables.foreign) == (["training_runs"], ["second"])
    shutil.copy(other.path / "tables" / "training_runs.parquet", moved.path / "tables")
    with pytest.raises(UserError, match="written for another run: second, training_runs"):
        RunFolder(moved.path).require_tables()


def test_runs_of_earlier_versions_keep_their_tables(tmp_path, schema):
    run = RunFolder(tmp_path)
    (tmp_path / "run.json").write_text('{"version": 1, "kind": "analyze"}')
    run.tables.write(pd.DataFrame({"seed": [1]}), schema)
    run.update(title="continued")
    assert list(RunFolder(tmp_path).tables) == ["training_runs"]


def test_table_written_again_is_read_again(tmp_path, schema):
    run = RunFolder(tmp_path)
    for seeds in ([1], [2, 3]):
        run.tables.write(pd.DataFrame({"seed": seeds}), schema)
        assert run.tables["training_runs"]["seed"].tolist() == seeds


def test_another_ones_tables_are_neither_read_nor_removed_nor_replaced(tmp_path, schema):
    run, folder = RunFolder(tmp_path), tmp_path / "tables"
    run.tables.write(pd.DataFrame({"seed": [1]}), schema)
    pd.DataFrame({"mine": [1]}).to_parquet(folder / "mine.parquet")
    shutil.copy(folder / "training_runs.parquet", folder / "kept.parquet")
    (folder / "notes.parquet").write_text("what I think of it")
    (folder / "folder.parquet").mkdir()
    assert list(run.tables) == ["training_runs"]
    run.tables.clear()
    run.tables.remove(["mine", "kept", "notes"])
    assert sorted(path.name for path in folder.iterdir()) == [
        ".names", "folder.parquet", "kept.parquet", "mine.parquet", "notes.parquet"
    ]  # fmt: skip
    for content in (b"of somebody else", (folder / "mine.parquet").read_bytes()):
        (folder / "training_runs.parquet").write_bytes(content)
        with pytest.raises(UserError, match=r"training_runs\.parquet was not written by infoflow.*another --out"):
            run.tables.write(pd.DataFrame({"seed": [2]}), schema)
        assert (folder / "training_runs.parquet").read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"\0" * 900, b"PAR1 and no more"])
def test_a_file_without_content_is_told_by_its_name(tmp_path, schema, content: bytes) -> None:
    run = RunFolder(tmp_path)
    run.tables.write(pd.DataFrame({"seed": [1]}), schema)
    for name in ("mine", "training_runs"):
        (tmp_path / "tables" / f"{name}.parquet").write_bytes(content)
    assert list(run.tables) == ["training_runs"]
    with pytest.raises(UserError, match=r"training_runs\.parquet is not a readable Parquet table"):
        RunFolder(tmp_path).tables["training_runs"]
    run.tables.clear()
    assert (tmp_path / "tables" / "mine.parquet").read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"\0" * 900, "cut"])
def test_what_damage_left_of_a_table_is_replaced(tmp_path, schema, content):
    run = RunFolder(tmp_path)
    path = run.tables.write(pd.DataFrame({"seed": [1]}), schema)
    path.write_bytes(path.read_bytes()[:500] if content == "cut" else content)
    run.tables.write(pd.DataFrame({"seed": [2]}), schema)
    assert run.tables["training_runs"]["seed"].tolist() == [2]


@pytest.mark.parametrize("name", ["training_runs.parquet", ".names"])
def test_a_folder_in_a_table_s_place_is_no_table_and_is_told_when_it_would_be_replaced(tmp_path, schema, name):
    run = RunFolder(tmp_path)
    (tmp_path / "tables" / name).mkdir(parents=True)
    assert list(run.tables) == []
    run.tables.remove(["training_runs"])
    with pytest.raises(UserError, match=r"is a folder, but a file must be written there\. Move it"):
        run.tables.write(pd.DataFrame({"seed": [1]}), schema)
    (tmp_path / "tables" / name).rmdir()
    run.tables.write(pd.DataFrame({"seed": [1]}), schema)
    assert list(run.tables) == ["training_runs"]


def test_a_table_that_is_gone_is_told_and_one_that_was_taken_away_is_not(tmp_path, schema):
    run = RunFolder(tmp_path)
    others = [replace(schema, name=name) for name in ("training_history", "geometry")]
    for each in (schema, *others):
        run.tables.write(pd.DataFrame({"seed": [1]}), each)
    assert run.tables.gone == []
    run.require_tables()  # without a warning, which would be an error here
    run.tables.remove(["geometry"])
    (tmp_path / "tables" / "training_history.parquet").unlink()
    for folder in (run, RunFolder(tmp_path)):
        assert list(folder.tables) == ["training_runs"]
        assert folder.tables.gone == ["training_history"]
        with pytest.warns(
            UserWarning, match="is damaged: tables that were written there are missing .training_history."
        ):
            folder.require_tables()
    pd.DataFrame({"mine": [1]}).to_parquet(tmp_path / "tables" / "training_history.parquet")
    assert RunFolder(tmp_path).tables.gone == ["training_history"]  # another's file in its place
    run.tables.clear()
    assert run.tables.gone == []
    assert (tmp_path / "tables" / "training_history.parquet").exists()
    (tmp_path / "tables" / ".names").unlink()
    run.tables.write(pd.DataFrame({"seed": [1]}), schema)
    assert run.tables.gone == []


@pytest.mark.parametrize("damage", [b"\0" * 60, b"training_runs\n\x1b[2J\n", b"a" * 300])
def test_a_damaged_list_of_tables_is_not_shown(tmp_path, schema, damage):
    run = RunFolder(tmp_path)
    run.tables.write(pd.DataFrame({"seed": [1]}), schema)
    (tmp_path / "tables" / ".names").write_bytes(damage)
    assert RunFolder(tmp_path).tables.gone == []
    assert list(RunFolder(tmp_path).tables) == ["training_runs"]
