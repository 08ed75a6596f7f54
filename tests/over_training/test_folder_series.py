"""Series of checkpoints in folders."""

import json
import math
import shutil
from pathlib import Path

import pytest
from support.checkpoint_series import STEPS, as_snapshots

from infoflow.foundation import UserError
from infoflow.over_training import CheckpointSeries, read_series
from infoflow.training import select_steps


@pytest.fixture
def folder(checkpoint_series: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint_series, tmp_path / "run"))


def _only(source: Path | str, **options) -> CheckpointSeries:
    (series,) = read_series([str(source)], **options)
    return series


def _updates(series: CheckpointSeries) -> list[int]:
    return [one.update for one in series.checkpoints]


def test_a_trainers_folder(folder: Path) -> None:
    series = _only(folder)
    assert _updates(series) == list(STEPS)
    assert series.name == "run"
    assert series.updates == 50
    tokens = [one.tokens for one in series.checkpoints]
    assert tokens[0] == 0
    assert tokens[-1] == 50 * tokens[1] / 2 > 0


def test_some_of_them(folder: Path) -> None:
    assert _updates(_only(f"{folder}@log:4")) == select_steps(STEPS, 4)
    assert _updates(_only(f"{folder}@4..19")) == [4, 6, 9, 13, 19]
    with pytest.raises(UserError, match=r"no checkpoint lies in 60\.\.70"):
        read_series([f"{folder}@60..70"])
    with pytest.raises(UserError, match="lower step to the higher"):
        read_series([f"{folder}@9..4"])
    with pytest.raises(UserError, match="at least 1 checkpoint"):
        read_series([f"{folder}@log:0"])
    with pytest.raises(UserError, match="cannot be read"):
        read_series([f"{folder}@linear:4"])
    with pytest.raises(UserError, match="names no revision"):
        read_series([f"{folder}@"])


@pytest.mark.parametrize("inside", ["snapshots", "checkpoints"])
def test_infoflows_own_training_folder(folder: Path, tmp_path: Path, inside: str) -> None:
    home = tmp_path / "trained" / inside
    home.mkdir(parents=True)
    for update in (0, 4, 50):
        (folder / f"checkpoint-{update}").rename(home / f"step-{update:08}")
    series = _only(tmp_path / "trained")
    assert _updates(series) == [0, 4, 50]
    assert series.name == "trained"
    assert _only(home).name == f"trained/{inside}"


def test_a_run_folder_has_a_series_for_each_model(folder: Path, other_series: Path, tmp_path: Path) -> None:
    """Published models are found again where they were trained."""
    run = tmp_path / "study"
    for key, source, model in (("b1", folder, "causal-lm/seed-0"), ("a2", other_series, "causal-lm/seed-1")):
        shutil.copytree(source, run / "work" / "training" / key / "checkpoints")
        for home in (run / "work" / "training" / key / "model", run / "models" / model):
            shutil.copytree(source / "checkpoint-50", home)
    (run / "run.json").write_text("{}")
    series = read_series([str(run)])
    assert [one.name for one in series] == ["causal-lm/seed-0", "causal-lm/seed-1"]
    assert [_updates(one) for one in series] == [list(STEPS)] * 2
    assert series[0].checkpoints[0].place.folder == run / "work" / "training" / "b1" / "checkpoints" / "checkpoint-0"


def test_the_manifest_of_infoflows_own_snapshots(folder: Path, tmp_path: Path) -> None:
    home = tmp_path / "trained" / "snapshots"
    for update in (0, 4, 9):
        shutil.copytree(folder / f"checkpoint-{update}", home / f"step-{update:08}")
        (home / f"step-{update:08}" / "trainer_state.json").unlink()
    entry = {"learning_rate": 0.1, "loss": 3.5, "dtype": "float32", "files": {}, "source_tokens": 1}
    entries = [{"update": update, "tokens": 10 * update, **entry} for update in (0, 4)]
    (home / "manifest.json").write_text(json.dumps({"schedule": [0, 4, 9, 12], "snapshots": entries}))
    series = _only(tmp_path / "trained")
    assert _updates(series) == [0, 4]  # a folder without entry is none
    assert [one.tokens for one in series.checkpoints] == [0, 40]
    assert (series.checkpoints[1].state.lr, series.checkpoints[1].state.training_loss) == (0.1, 3.5)
    assert series.updates == 12
    (home / "manifest.json").write_text("[")
    assert _updates(_only(tmp_path / "trained")) == []  # nothing says what of it is whole


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 64
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda step: shutil.rmtree(step), "its training saved it, but it no longer exists"),
        (lambda step: _flip(step / "model.safetensors"), "model.safetensors is not what its training wrote"),
        (lambda step: (step / "config.json").write_text("{}"), "config.json is not what its training wrote"),
        (lambda step: (step / "model.safetensors").unlink(), "its folder holds no config.json and weights"),
    ],
)
def test_what_a_manifest_says_was_there_is_missed(folder: Path, tmp_path: Path, damage, why: str) -> None:
    home = as_snapshots(folder, tmp_path / "trained" / "snapshots", (0, 4, 9, 13))
    assert not _only(home).missing
    damage(home / "step-00000004")
    series = _only(home)
    assert _updates(series) == [0, 9, 13]
    (missing,) = series.missing
    assert (missing.name, missing.update) == ("step-00000004", 4)
    assert missing.why.startswith(why)
    assert missing.lost


def test_the_trainers_note_beats_the_name(folder: Path) -> None:
    (folder / "checkpoint-27").rename(folder / "checkpoint-28")
    series = _only(folder)
    assert _updates(series) == list(STEPS)
    moved = series.checkpoints[7]
    assert (moved.name, moved.named, moved.state.step) == ("checkpoint-28", 28, 27)
    by_hand = _only(folder, steps={"checkpoint-28": 30})
    assert _updates(by_hand)[7] == 30


def test_a_damaged_note_is_none(folder: Path) -> None:
    for text in ("{", "[]", json.dumps({"global_step": "x", "log_history": 3, "num_input_tokens_seen": True})):
        (folder / "checkpoint-27" / "trainer_state.json").write_text(text)
        (odd,) = [one for one in _only(folder).checkpoints if one.name == "checkpoint-27"]
        assert odd.update == 27
        assert math.isnan(odd.tokens)


def test_names_that_tell_no_step(folder: Path) -> None:
    (folder / "checkpoint-27").rename(folder / "best")
    with pytest.raises(UserError, match=r"No step can be read from these names in .*run: best\..*--steps best="):
        read_series([str(folder)])
    assert _updates(_only(folder, steps={"best": 27})) == list(STEPS)
    with pytest.raises(UserError, match="names no checkpoint"):
        read_series([str(folder)], {"best": 27, "worst": 3})


def test_the_model_beside_its_checkpoints(folder: Path) -> None:
    """One that equals a checkpoint is that one; another is on the axis only where something tells its step."""
    for name in ("model.safetensors", "config.json"):
        shutil.copy(folder / "checkpoint-50" / name, folder)
    assert _updates(_only(folder)) == list(STEPS)
    shutil.copy(folder / "checkpoint-38" / "model.safetensors", folder)
    shutil.rmtree(folder / "checkpoint-38")
    series = _only(folder)
    assert 38 not in _updates(series)
    assert "left out" in series.notes[0]
    assert "--steps main=STEP" in series.notes[0]
    assert 38 in _updates(_only(folder, steps={"main": 38}))
    shutil.copy(folder / "checkpoint-50" / "trainer_state.json", folder)
    assert _updates(_only(folder)).count(50) == 2


def test_empty_folders_are_missing(folder: Path) -> None:
    (folder / "checkpoint-27" / "model.safetensors").unlink()
    shutil.rmtree(folder / "checkpoint-38")
    (folder / "checkpoint-38").mkdir()
    (folder / "logs").mkdir()
    series = _only(folder)
    assert [one.update for one in series.missing] == [27, 38]
    assert not {27, 38} & set(_updates(series))


@pytest.mark.parametrize("config", [True, False], ids=["beside the base model's configuration", "alone"])
def test_an_adapter_is_no_checkpoint_of_a_model(folder: Path, config: bool) -> None:
    """It holds what `peft` put beside the weights: nothing of it can be compared with whole models."""
    own = folder / "checkpoint-27"
    (own / "model.safetensors").rename(own / "adapter_model.safetensors")
    (own / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    if not config:
        (own / "config.json").unlink()
    series = _only(folder)
    (missing,) = series.missing
    assert missing.update == 27
    assert "an adapter" in missing.why
    assert "merge_and_unload" in missing.why
    assert 27 not in _updates(series)


def test_a_merged_model_may_keep_its_adapter_beside(folder: Path) -> None:
    own = folder / "checkpoint-27"
    (own / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    assert 27 in _updates(_only(folder))


def test_stages_follow_each_other_by_their_tokens(folder: Path, tmp_path: Path) -> None:
    home = tmp_path / "staged"
    names = ["stage1-step10-tokens1B", "stage1-step20-tokens2B"]
    names += [f"stage2-ingredient{k}-step5-tokens1B" for k in (1, 2)]
    for name in names:
        shutil.copytree(folder / "checkpoint-4", home / name)
        (home / name / "trainer_state.json").unlink()
    series = read_series([str(home)])
    assert [one.name for one in series] == ["staged-ingredient1", "staged-ingredient2"]
    for one in series:
        assert _updates(one) == [10, 20, 25]
        assert [each.tokens for each in one.checkpoints] == [1e9, 2e9, 3e9]
    shutil.copytree(home / names[0], home / "stage1-step15")
    with pytest.raises(UserError, match="Choose checkpoints of one stage"):
        read_series([str(home)])


def test_what_is_no_series(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="infoflow analyze"):
        read_series([str(folder / "checkpoint-4")])
    with pytest.raises(UserError, match="holds no checkpoints"):
        read_series([str(tmp_path)])
    with pytest.raises(UserError, match="is a file"):
        read_series([str(folder / "checkpoint-4" / "config.json")])
    with pytest.raises(UserError, match="No folder at"):
        read_series(["./nowhere"])
    with pytest.raises(UserError, match="empty name"):
        read_series([" "])
    with pytest.raises(UserError, match=r"gpt2@all.*infoflow analyze gpt2"):
        read_series(["gpt2"])
    with pytest.raises(UserError, match="given once"):
        read_series([str(folder), str(folder)])
    for braces in ("a-step_{1,1}", "a-step_{}", "a{b}{c}", "a}b{", "a{1,"):
        with pytest.raises(UserError, match=r"Braces hold|names one model"):
            read_series([braces])
