"""`over_training`: every table at every checkpoint, the rows of an analysis of that checkpoint alone."""

import dataclasses
import json
import shutil
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from support.checkpoint_series import STEPS
from support.small_hub import small_hub
from support.undrawn import undrawn

from infoflow.foundation import UserError
from infoflow.models import load_model
from infoflow.results import RunFolder
from infoflow.studies import AnalysisPlan, AnalyzeOptions, MeasureExternal, Run, analyze, light_tables
from infoflow.subjects.over_training.stages import is_shard, merge_over_training, over_training
from infoflow.training import SUFFIX

pytestmark = pytest.mark.slow

SETTINGS = AnalysisPlan(occurrences=300, types=20, clusters=8, clusterings=1, distance_occurrences=300)
OPTIONS = AnalyzeOptions(corpus="grammar:120", measures=SETTINGS)
ONE = AnalyzeOptions(corpus="grammar:60", measures=SETTINGS, only=("head_confidence",))


BESIDE_OTHERS = {"convergence", "weight_change", "prediction_divergence", "embedding_change"}
GIVEN = sorted({*light_tables()} - BESIDE_OTHERS - {"translation_stages"})
"""The light tables of a causal LM that is looked at by itself, whatever other checkpoints there are."""


@pytest.fixture(scope="module")
def followed(checkpoint_series: Path, tmp_path_factory) -> Run:
    with undrawn():
        return over_training(f"{checkpoint_series}@log:4", OPTIONS, tmp_path_factory.mktemp("runs") / "all")


@pytest.fixture
def folder(checkpoint_series: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint_series, tmp_path / "lm"))


def test_the_light_tables_are_measured_at_each_checkpoint(followed: Run) -> None:
    tables = {name for name in followed.tables if name.endswith(SUFFIX)}
    assert tables == {f"{name}{SUFFIX}" for name in GIVEN}
    assert followed.folder.read()["kind"] == "over-training"
    for name in tables:
        frame = followed.tables[name]
        assert set(frame["update"]) == {0, 2, 6, 19, 50}, name
        assert set(frame["objective"]) == {"causal-lm"}
        assert set(frame["architecture"]) == {"gpt2"}
        assert (frame["trained"] == (frame["update"] != 0)).all()


def test_clocks(followed: Run) -> None:
    frame = followed.tables["checkpoints"]
    assert list(frame["update"]) == [0, 2, 6, 19, 50]
    assert list(frame["progress"]) == [0, 0.04, 0.12, 0.38, 1]
    assert frame["tokens"].iloc[0] == 0
    assert (frame["tokens"] / frame["update"]).iloc[1:].nunique() == 1
    assert frame["lr_share"].isna().all()
    assert set(frame["same_as"]) == {-1}
    assert set(frame["dtype"]) == {"float32"}
    assert frame["sha256"].str.fullmatch("[0-9a-f]{64}").all()
    assert frame["sample_loss"].is_monotonic_decreasing
    assert len(followed.tables["checkpoint_checks"]) == 0


@pytest.mark.parametrize("update", [0, 19])
def test_a_row_is_that_of_the_checkpoint_alone(followed: Run, checkpoint_series: Path, tmp_path, update: int) -> None:
    """Bit for bit, key columns aside."""
    options = AnalyzeOptions(**{**_fields(OPTIONS), "control": False, "only": tuple(GIVEN)})
    with undrawn():
        alone = analyze([str(checkpoint_series / f"checkpoint-{update}")], options, tmp_path / "alone")
    for name in GIVEN:
        expected = alone.tables[name]
        rows = followed.tables[f"{name}{SUFFIX}"].query(f"update == {update}")
        columns = [column for column in expected.columns if column not in ("model", "update", "trained")]
        assert len(expected) == len(rows) > 0
        pd.testing.assert_frame_equal(
            rows[columns].reset_index(drop=True), expected[columns].reset_index(drop=True), check_exact=True
        )


HEAVY = (
    "change_by_frequency",
    "context_neighbours",
    "head_distance",
    "head_entropy",
    "head_importance",
    "head_rare_token",
    "identity_neighbours",
    "influence_by_frequency",
    "lens",
    "position_neighbours",
    "token_map",
)
"""Of the tables that are not light those that are cheap on two layers."""


def test_heavy_rows_are_those_of_the_checkpoint_alone(checkpoint_series: Path, tmp_path: Path, no_drawing) -> None:
    run = over_training(f"{checkpoint_series}@0..6", ONE, tmp_path / "all", heavy=HEAVY, heavy_steps="linear:1")
    options = AnalyzeOptions(**{**_fields(ONE), "control": False, "only": HEAVY})
    alone = analyze([str(checkpoint_series / "checkpoint-6")], options, tmp_path / "alone")
    for name in HEAVY:
        expected = alone.tables[name]
        rows = run.tables[f"{name}{SUFFIX}"]
        assert set(rows["update"]) == {0, 6}, name
        rows = rows[rows["update"] == 6]
        columns = [column for column in expected.columns if column not in ("model", "update", "trained")]
        assert len(expected) == len(rows) > 0
        pd.testing.assert_frame_equal(
            pd.DataFrame(rows[columns]).reset_index(drop=True),
            pd.DataFrame(expected[columns]).reset_index(drop=True),
            check_exact=True,
        )


def _fields(options: AnalyzeOptions) -> dict:
    return {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}


def test_a_second_call_measures_nothing_and_a_checkpoint_more_measures_it_alone(folder: Path, tmp_path, no_drawing):
    out = tmp_path / "out"
    first = over_training(f"{folder}@log:2", ONE, out).tables[f"head_confidence{SUFFIX}"]
    made = {path: path.stat().st_mtime_ns for path in (out / "work" / "measured").rglob("*.parquet")}
    assert len(made) == 3
    over_training(f"{folder}@log:2", ONE, out)
    assert {path: path.stat().st_mtime_ns for path in (out / "work" / "measured").rglob("*.parquet")} == made
    again = over_training(f"{folder}@log:3", ONE, out).tables[f"head_confidence{SUFFIX}"]
    after = {path: path.stat().st_mtime_ns for path in (out / "work" / "measured").rglob("*.parquet")}
    assert made.items() < after.items()
    assert len(after) == 4
    old = again[again["update"].isin(first["update"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(old, first, check_exact=True)


def test_suspects_are_left_out_unless_asked_for(folder: Path, other_series: Path, tmp_path, no_drawing) -> None:
    name = "model.safetensors"
    shutil.copy(other_series / "checkpoint-13" / name, folder / "checkpoint-13" / name)
    with pytest.warns(UserWarning, match="checkpoint-13 lies far from both neighbours .* Left out"):
        run = over_training(f"{folder}@6..27", ONE, tmp_path / "out")
    checks = run.tables["checkpoint_checks"]
    assert checks[checks["level"] == "error"][["check", "update"]].to_numpy().tolist() == [["K3", 13]]
    frame = run.tables["checkpoints"]
    assert list(frame.loc[frame["excluded"], "update"]) == [13]
    assert set(run.tables[f"head_confidence{SUFFIX}"]["update"]) == {6, 9, 19, 27}
    assert any("checkpoint-13" in warning and "Left out" in warning for warning in run.folder.read()["warnings"])
    kept = over_training(f"{folder}@6..27", ONE, tmp_path / "out", include_suspect=True)
    assert set(kept.tables[f"head_confidence{SUFFIX}"]["update"]) == {6, 9, 13, 19, 27}
    assert not kept.tables["checkpoints"]["excluded"].any()


def test_equal_weights_are_measured_once(folder: Path, tmp_path, no_drawing) -> None:
    name = "model.safetensors"
    shutil.copy(folder / "checkpoint-0" / name, folder / "checkpoint-2" / name)
    run = over_training(f"{folder}@0..6", ONE, tmp_path / "out")
    frame = run.tables[f"head_confidence{SUFFIX}"]
    assert frame.groupby("update")["same_as"].first().to_dict() == {0: -1, 2: 0, 4: -1, 6: -1}
    values = {update: list(rows["value"]) for update, rows in frame.groupby("update")}
    assert values[2] == values[0] != values[4]
    assert len(list((tmp_path / "out" / "work" / "measured").rglob("*.parquet"))) == 3


def test_what_cannot_be_loaded_is_a_suspect_whatever_is_asked_for(folder: Path, tmp_path, no_drawing) -> None:
    path = folder / "checkpoint-9" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"n_layer": 3}))
    (folder / "checkpoint-27" / "model.safetensors").write_bytes(b"no weights")
    with pytest.warns(UserWarning, match="checkpoint-(9|27) cannot be read: .* Left out"):
        run = over_training(folder, ONE, tmp_path / "out", include_suspect=True)
    frame = run.tables["checkpoints"]
    assert list(frame.loc[frame["excluded"], "update"]) == [9, 27]
    told = run.tables["checkpoint_checks"]["message"]
    assert any("checkpoint-9 cannot be read: " in text and "would be random" in text for text in told)
    assert any("checkpoint-27 cannot be read: " in text for text in told)
    assert any("n layer 3 here, 2 at checkpoint-0" in text for text in told)
    assert not any(str(tmp_path) in text for text in told)


def test_checks_alone(folder: Path, tmp_path, no_drawing) -> None:
    first = f"{folder}@0..4"
    run = over_training(first, ONE, tmp_path / "out", check=True)
    assert sorted(run.tables) == ["checkpoint_checks", "checkpoints"]
    over_training(first, ONE, tmp_path / "out")
    run = over_training(first, ONE, tmp_path / "out", check=True)
    assert f"head_confidence{SUFFIX}" in run.tables


def test_two_series_and_a_report(folder: Path, other_series: Path, tmp_path) -> None:
    run = over_training([f"{folder}@log:1", f"{other_series}@log:1"], ONE, tmp_path / "out")
    assert set(run.tables[f"head_confidence{SUFFIX}"]["model"]) == {"lm", other_series.name}
    assert (tmp_path / "out" / "report.html").stat().st_size > 1000
    assert Run.open(tmp_path / "out").report().exists()


def test_one_checkpoint_is_no_training(folder: Path, tmp_path) -> None:
    with pytest.raises(
        UserError, match=r"at least two checkpoints.*checkpoint-50[\s\S]*infoflow analyze .*checkpoint-50"
    ):
        over_training(f"{folder}@40..50", ONE, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_suspects_that_leave_fewer_than_two(folder: Path, tmp_path) -> None:
    for update in set(STEPS) - {9, 50}:
        shutil.rmtree(folder / f"checkpoint-{update}")
    shutil.copy(folder / "checkpoint-9" / "model.safetensors", folder / "checkpoint-50" / "model.safetensors")
    with pytest.raises(UserError, match="of lm passed the checks; these did not: checkpoint-"):
        over_training(folder, ONE, tmp_path / "out")


def test_a_folder_of_another_kind(folder: Path, tmp_path) -> None:
    RunFolder(tmp_path / "out").path.mkdir()
    RunFolder(tmp_path / "out").update(kind="study")
    with pytest.raises(UserError, match="a run of another kind"):
        over_training(folder, ONE, tmp_path / "out")
    with pytest.raises(UserError, match="At least one series"):
        over_training([], ONE, tmp_path / "out")
    unknown = AnalyzeOptions(corpus="grammar:60", only=("nothing",))
    with pytest.raises(UserError, match="--only: unknown measure nothing"):
        over_training(folder, unknown, tmp_path / "new")


def test_a_suite_on_a_hub_streams_through_the_cache(
    checkpoint_series: Path, other_series: Path, tmp_path, no_drawing, monkeypatch
) -> None:
    """Two revisions at most are in the cache; equal ones are fetched once; a suspect is found in passing."""
    cache, held = tmp_path / "cache", []
    with small_hub(cache, monkeypatch) as hub:
        for update in STEPS:
            folder = (other_series if update == 13 else checkpoint_series) / f"checkpoint-{update}"
            hub.add("someone/suite", f"step{update}", checkpoint_series / "checkpoint-0" if update == 2 else folder)
        monkeypatch.setattr(MeasureExternal, "of", _watched(cache, held))
        with pytest.warns(UserWarning, match="Left out"):
            run = over_training("someone/suite@all", ONE, tmp_path / "out", steps=["step2=2"])
    assert len(held) == len(STEPS) - 1
    assert set(held) <= {1, 2}
    assert len(hub.downloads()) == len(STEPS) - 1
    assert list((cache / "models--someone--suite" / "blobs").iterdir()) == []
    frame = run.tables[f"head_confidence{SUFFIX}"]
    assert set(frame["update"]) == set(STEPS) - {13}
    assert set(frame["model"]) == {"someone/suite"}
    assert set(frame.loc[frame["update"] == 2, "same_as"]) == {0}
    kept = run.tables["checkpoints"].set_index("update")
    assert kept.loc[4, "revision"] == "someone/suite@step4"
    assert kept.loc[4, "commit"] == hub.branches["someone/suite"]["step4"]
    local = over_training(f"{checkpoint_series}@4..6", ONE, tmp_path / "local").tables[f"head_confidence{SUFFIX}"]
    ours = frame[frame["update"].isin([4, 6])]
    assert list(ours["value"]) == list(local["value"])


def _watched(cache: Path, held: list[int]):
    """`MeasureExternal.of`, which notes how many files of weights the cache holds when a model is measured."""
    of = MeasureExternal.of

    def watched(*args) -> MeasureExternal:
        held.append(len(list(cache.rglob("snapshots/*/*.safetensors"))))
        return of(*args)

    return watched


# -- options: references, heavy steps, processes ----------------------------------------------------------------------

COMPARED = {"convergence", "weight_change", "prediction_divergence", "embedding_change"}


def test_checkpoints_are_compared_with_the_last_one(folder: Path, tmp_path, no_drawing) -> None:
    run = over_training(f"{folder}@2..6", ONE, tmp_path / "out", references=["final", "previous"])
    assert {name.removesuffix(SUFFIX) for name in run.tables} >= COMPARED
    assert f"convergence{SUFFIX}" not in run.tables  # convergence has its clocks and the course in it
    near = run.tables["convergence"]
    states = near[(near["reference"] == "final") & (near["similarity"] == "displacement") & (near["kind"] == "state")]
    by_update = states.groupby("update")["value"].mean()
    assert by_update.iloc[-1] == 0
    assert (by_update.iloc[:-1] > 0).all()
    assert by_update.index.tolist() == sorted(update for update in STEPS if 2 <= update <= 6)
    moved = run.tables[f"weight_change{SUFFIX}"]
    assert set(moved["measure"]) >= {"from_previous", "cosine_final"}
    assert "from_initial" not in set(moved["measure"])
    # The light tables are those of a call without references.
    plain = over_training(f"{folder}@2..6", ONE, tmp_path / "plain").tables[f"head_confidence{SUFFIX}"]
    assert list(plain["value"]) == list(run.tables[f"head_confidence{SUFFIX}"]["value"])


def test_each_reference_is_loaded_once_for_a_checkpoint(folder: Path, tmp_path, no_drawing, monkeypatch) -> None:
    loaded = Counter()

    def load(source, **options):
        loaded[int(Path(source).name.removeprefix("checkpoint-"))] += 1
        return load_model(source, **options)

    monkeypatch.setattr("infoflow.models.load_model", load)
    over_training(f"{folder}@2..6", ONE, tmp_path / "out", references=["final", "previous"])
    updates = sorted(update for update in STEPS if 2 <= update <= 6)
    previous = [*zip(updates, [None, *updates[:-1]], strict=True)]
    # Where the one before is the last one, or there is none, one load is enough.
    references = [one for update, before in previous for one in (6, before) if one is not None]
    assert loaded == Counter(references) + Counter(2 * updates)  # each is weighed, and measured


def test_heavy_tables_at_heavy_steps(folder: Path, tmp_path, no_drawing) -> None:
    run = over_training(folder, ONE, tmp_path / "out", heavy=["head_entropy"], heavy_steps="linear:2")
    every, some = (set(run.tables[f"{name}{SUFFIX}"]["update"]) for name in ("head_confidence", "head_entropy"))
    assert every == set(STEPS)
    nearest = {min(STEPS, key=lambda step: (abs(step - wanted), step)) for wanted in (0, STEPS[-1] / 2, STEPS[-1])}
    assert some == nearest
    again = over_training(folder, ONE, tmp_path / "out", heavy=["head_entropy"], heavy_steps="linear:1")
    assert set(again.tables[f"head_entropy{SUFFIX}"]["update"]) == {STEPS[0], STEPS[-1]}


def test_processes_change_no_number(folder: Path, tmp_path, no_drawing) -> None:
    one = over_training(f"{folder}@0..4", ONE, tmp_path / "one", references=["final"])
    two = over_training(f"{folder}@0..4", ONE, tmp_path / "two", references=["final"], num_processes=2)
    assert sorted(one.tables) == sorted(two.tables)
    for name in (f"head_confidence{SUFFIX}", "convergence", f"weight_change{SUFFIX}"):
        assert repr(one.tables[name].to_dict("records")) == repr(two.tables[name].to_dict("records"))


def test_shards_put_together_are_the_run_of_one_machine(folder: Path, tmp_path, no_drawing) -> None:
    name = "model.safetensors"
    shutil.copy(folder / "checkpoint-0" / name, folder / "checkpoint-2" / name)
    how = {"references": ["final"], "heavy": ["head_entropy"], "heavy_steps": "linear:1"}
    whole = over_training(f"{folder}@0..9", ONE, tmp_path / "whole", **how)
    parts = [tmp_path / f"shard-{part}" for part in range(3)]
    for part, out in enumerate(parts):
        over_training(f"{folder}@0..9", ONE, out, **how, shard=(part, 3))
        assert is_shard(out)
        assert not RunFolder(out).tables
    measured = [{path.name for path in (out / "work" / "measured").iterdir()} for out in parts]
    assert all(own < set().union(*measured) for own in measured)  # each a part
    merged = merge_over_training(parts[::-1], tmp_path / "merged")
    assert {path.name for path in (tmp_path / "merged" / "work" / "measured").iterdir()} == set().union(*measured)
    assert sorted(merged.tables) == sorted(whole.tables)
    for table in merged.tables:
        one, other = (pd.DataFrame(run.tables[table]) for run in (whole, merged))
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    assert not is_shard(tmp_path / "merged")


def test_shards_that_do_not_belong_together(folder: Path, tmp_path, no_drawing) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    over_training(f"{folder}@0..4", ONE, first, shard=(0, 2))
    with pytest.raises(UserError, match=r"Shards 1 of 2 are missing .*Name all"):
        merge_over_training([first], tmp_path / "out")
    with pytest.raises(UserError, match=r"must be distinct\. Got 0, 0"):
        merge_over_training([first, first], tmp_path / "out")
    over_training(f"{folder}@0..6", ONE, second, shard=(1, 2))
    with pytest.raises(UserError, match="with another command"):
        merge_over_training([first, second], tmp_path / "out")
    with pytest.raises(UserError, match="another kind"):
        over_training(f"{folder}@0..4", ONE, first)
    plain = tmp_path / "plain"
    over_training(f"{folder}@0..2", ONE, plain)
    with pytest.raises(UserError, match="not written by `infoflow over-training --shard`"):
        merge_over_training([first, plain], tmp_path / "out")
    for shard in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(UserError, match="--shard must be i/n"):
            over_training(folder, ONE, tmp_path / "out", shard=shard)
    with pytest.raises(UserError, match="Leave --shard out"):
        over_training(folder, ONE, tmp_path / "out", shard=(0, 2), check=True)
    assert not (tmp_path / "out").exists()


def test_a_hub_holds_two_revisions_at_most(
    checkpoint_series: Path, other_series: Path, tmp_path, no_drawing, monkeypatch
) -> None:
    cache, held = tmp_path / "cache", []
    with small_hub(cache, monkeypatch) as hub:
        for update in STEPS[:5]:
            hub.add("someone/suite", f"step{update}", checkpoint_series / f"checkpoint-{update}")
        monkeypatch.setattr(MeasureExternal, "of", _watched(cache, held))
        with pytest.raises(UserError, match="either final or initial"):
            over_training("someone/suite@all", ONE, tmp_path / "out", references=["final", "previous"])
        with pytest.raises(UserError, match="--processes above 1 needs local checkpoints"):
            over_training("someone/suite@all", ONE, tmp_path / "out", num_processes=2)
        over_training("someone/suite@all", ONE, tmp_path / "out")
        assert len(hub.downloads()) == 5
        run = over_training("someone/suite@all", ONE, tmp_path / "compared", references=["final"])
    assert max(held) <= 2
    assert "prediction_divergence_over_training" in run.tables
    assert list((cache / "models--someone--suite" / "blobs").iterdir()) == []
