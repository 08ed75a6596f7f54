"""Checks K1 to K12: a clean series raises none, and each planted fault is told of and nothing else believed."""

import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.checkpoint_series import STEPS

from infoflow.foundation import UserError
from infoflow.over_training import (
    CHECKPOINT_CHECKS,
    CheckRow,
    Missing,
    SeriesChecks,
    WeighedCheckpoint,
    Weight,
    check_series,
    read_series,
    triangle_ratios,
    weigh,
)

Edit = Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]


@pytest.fixture
def folder(checkpoint_series: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint_series, tmp_path / "run"))


def _weighed(folder: Path) -> list[WeighedCheckpoint]:
    (series,) = read_series([str(folder)])
    found = []
    for one in series.checkpoints:
        weight, sketch, fault = None, np.zeros(0, dtype=np.float32), ""
        try:
            weight, sketch = weigh(one.place.folder)
        except UserError as error:
            fault = str(error)
        found.append(
            WeighedCheckpoint(
                name=one.name,
                update=one.update,
                progress=one.update / 50,
                named=one.named,
                saved_at=one.state.step,
                files=one.place.weight_files(),
                weight=weight,
                fault=fault,
                sketch=sketch,
            )
        )
    return found


def _checks(folder: Path) -> SeriesChecks:
    return check_series(_weighed(folder))


def _weights(folder: Path, update: int) -> Path:
    return folder / f"checkpoint-{update}" / "model.safetensors"


def _edit(folder: Path, update: int, edit: Edit) -> None:
    path = _weights(folder, update)
    save_file(edit(load_file(path)), path, metadata={"format": "pt"})


def _config(folder: Path, update: int, **entries: object) -> None:
    path = folder / f"checkpoint-{update}" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def _only(checks: SeriesChecks, check: str, level: str = "error") -> CheckRow:
    """The one row of that check; no other check calls anything an error."""
    assert {row.check for row in checks.rows if row.level == "error"} <= {check}, checks.rows
    (found,) = [row for row in checks.rows if row.check == check and row.level == level]
    return found


def test_a_clean_series_raises_nothing(folder: Path) -> None:
    checks = _checks(folder)
    assert checks.rows == ()
    assert checks.suspects == ()
    assert checks.same_as == {}


def test_rows_fit_their_schema() -> None:
    names = {field.name for field in dataclasses.fields(CheckRow)} - {"update"}
    assert names == set(CHECKPOINT_CHECKS.column_names)


# -- K1, K2 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("origin", "copy"), [(6, 27), (50, 9), (27, 6), (6, 50), (9, 13)])
def test_a_copy_of_another_checkpoint(folder: Path, origin: int, copy: int) -> None:
    """Which of the two is the copy follows from where the weights lie."""
    shutil.copy(_weights(folder, origin), _weights(folder, copy))
    checks = _checks(folder)
    found = _only(checks, "K1")
    assert found.message == f"checkpoint-{copy} holds the weights of checkpoint-{origin}"
    assert (found.update, found.other_step) == (copy, origin)
    assert checks.suspects == (f"checkpoint-{copy}",)
    assert checks.same_as == {f"checkpoint-{max(origin, copy)}": min(origin, copy)}


def test_equal_tensors_in_unequal_files(folder: Path) -> None:
    save_file(load_file(_weights(folder, 6)), _weights(folder, 27), metadata={"format": "pt", "note": "uploaded again"})
    assert _checks(folder).suspects == ("checkpoint-27",)


def test_first_checkpoints_may_be_equal(folder: Path) -> None:
    shutil.copy(_weights(folder, 0), _weights(folder, 2))
    found = _only(_checks(folder), "K1", "note")
    assert (found.update, found.other_step) == (2, 0)


def test_the_last_weights_in_many_places(folder: Path) -> None:
    for update in (0, 4, 9):
        shutil.copy(_weights(folder, 50), _weights(folder, update))
    checks = _checks(folder)
    assert set(checks.suspects) == {"checkpoint-0", "checkpoint-4", "checkpoint-9"}
    assert all("holds the weights of checkpoint-50" in row.message for row in checks.rows if row.check == "K1")


def _split(folder: Path, update: int) -> tuple[Path, Path]:
    """The weights as two shards."""
    path = _weights(folder, update)
    tensors = load_file(path)
    names = sorted(tensors)
    shards = [path.with_name(f"model-0000{number}-of-00002.safetensors") for number in (1, 2)]
    for shard, part in zip(shards, (names[:8], names[8:]), strict=True):
        save_file({name: tensors[name] for name in part}, shard, metadata={"format": "pt"})
    path.unlink()
    return shards[0], shards[1]


def test_a_shard_of_another_checkpoint(folder: Path) -> None:
    first = {update: _split(folder, update)[0] for update in STEPS}
    assert _checks(folder).rows == ()
    shutil.copy(first[50], first[9])
    found = [row for row in _checks(folder).rows if row.check == "K2"]
    assert [(row.update, row.other_step, row.level) for row in found] == [(9, 50, "error")]
    assert found[0].message == "model-00001-of-00002.safetensors of checkpoint-9 is that of checkpoint-50"


def test_a_shard_that_all_share_is_frozen(folder: Path) -> None:
    first = {update: _split(folder, update)[0] for update in STEPS}
    for update in STEPS[1:]:
        shutil.copy(first[0], first[update])
    found = _only(_checks(folder), "K2", "note")
    assert "frozen" in found.message


# -- K3 to K5 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("update", [4, 13, 38])
def test_another_seeds_weights(folder: Path, other_series: Path, update: int) -> None:
    shutil.copy(_weights(other_series, update), _weights(folder, update))
    found = _only(_checks(folder), "K3")
    assert found.update == update
    assert found.value > found.limit == 3
    assert found.message == f"checkpoint-{update} lies far from both neighbours (r = {found.value:.1f}): another run?"


def test_two_strangers_leave_their_neighbours_alone(folder: Path, other_series: Path) -> None:
    for update in (6, 27):
        shutil.copy(_weights(other_series, update), _weights(folder, update))
    checks = _checks(folder)
    assert set(checks.suspects) == {"checkpoint-6", "checkpoint-27"}
    values = [row.value for row in checks.rows if row.check == "K3"]
    assert values == sorted(values, reverse=True)


def test_ratios_are_those_of_triangles(folder: Path, other_series: Path) -> None:
    """On all weights of the files, whatever a sketch is."""
    shutil.copy(_weights(other_series, 9), _weights(folder, 9))
    points = []
    for update in (6, 9, 13):
        tensors = load_file(_weights(folder, update))
        points.append(
            torch.cat([tensors[name].flatten() for name in sorted(tensors) if tensors[name].ndim > 1]).numpy()
        )
    assert _only(_checks(folder), "K3").value == pytest.approx(triangle_ratios(np.stack(points))[0])


@pytest.mark.parametrize(("first", "second"), [(4, 6), (9, 27), (13, 19)])
def test_swapped_checkpoints(folder: Path, first: int, second: int) -> None:
    a, b = _weights(folder, first), _weights(folder, second)
    a.rename(folder / "held")
    b.rename(a)
    (folder / "held").rename(b)
    found = [row for row in _checks(folder).rows if row.check in ("K3", "K4")]
    assert {row.update for row in found} & {first, second}
    falls = [row for row in found if row.check == "K4"]
    assert all("is nearer to the start than" in row.message and row.level == "warning" for row in falls)
    assert falls or any(row.level == "error" for row in found)


def test_shuffled_checkpoints_are_many_warnings(folder: Path) -> None:
    order = np.random.default_rng(0).permutation(STEPS[1:])
    for update in STEPS[1:]:
        _weights(folder, update).rename(folder / f"held-{update}")
    for update, taken in zip(STEPS[1:], order, strict=True):
        (folder / f"held-{taken}").rename(_weights(folder, update))
    assert sum(row.check in ("K3", "K4") for row in _checks(folder).rows) >= 3


def test_a_step_0_of_another_seed(folder: Path, other_series: Path) -> None:
    shutil.copy(_weights(other_series, 0), _weights(folder, 0))
    found = _only(_checks(folder), "K5")
    assert found.update == 0
    assert "do not descend from checkpoint-0" in found.message


def test_a_last_step_of_another_seed(folder: Path, other_series: Path) -> None:
    """It has no neighbour behind it, so its way tells nothing; but it does not come from step 0."""
    shutil.copy(_weights(other_series, 50), _weights(folder, 50))
    found = _only(_checks(folder), "K5")
    assert (found.update, found.message) == (50, "checkpoint-50 does not descend from checkpoint-0")


def test_an_early_checkpoint_far_from_step_0(folder: Path) -> None:
    """Partly other weights: at 1 % of a training even half of the way is too far."""
    seen = _weighed(folder)
    noise = np.random.default_rng(0).normal(size=seen[1].sketch.shape) * np.abs(seen[0].sketch).mean() * 3
    odd = dataclasses.replace(seen[1], progress=0.005, sketch=(seen[0].sketch + noise).astype(np.float32))
    series = [seen[0], odd, *(dataclasses.replace(one, sketch=odd.sketch + one.sketch) for one in seen[2:])]
    found = [row for row in check_series(series).rows if row.check == "K5"]
    assert [(row.name, row.limit) for row in found] == [("checkpoint-2", 0.5)]


# -- K6 ---------------------------------------------------------------------------------------------------------------


def _with_losses(folder: Path, losses: list[float], error: float = 0.01) -> list[WeighedCheckpoint]:
    return [
        dataclasses.replace(one, loss=loss, loss_error=error)
        for one, loss in zip(_weighed(folder), losses, strict=True)
    ]


_LOSSES = [4.4, 4.3, 4.25, 4.2, 4.1, 4.0, 3.9, 3.8, 3.7, 3.65]


def test_a_decreasing_loss_is_no_fault(folder: Path) -> None:
    assert check_series(_with_losses(folder, _LOSSES)).rows == ()
    wiggling = [loss + 0.04 * (-1) ** place for place, loss in enumerate(_LOSSES)]
    assert check_series(_with_losses(folder, wiggling)).rows == ()
    steep = [11.0, 9.0, 5.0, 4.5, 4.4, 4.3, 4.2, 4.1, 3.0, 2.9]
    assert check_series(_with_losses(folder, steep)).rows == ()
    assert check_series(_with_losses(folder, [math.nan] * 10)).rows == ()


@pytest.mark.parametrize(("place", "loss", "sign"), [(6, 5.1, 1), (2, 3.6, -1), (9, 4.4, 1), (0, 3.0, -1)])
def test_a_loss_beside_the_others(folder: Path, place: int, loss: float, sign: int) -> None:
    losses = list(_LOSSES)
    losses[place] = loss
    found = _only(check_series(_with_losses(folder, losses)), "K6", "warning")
    assert found.update == STEPS[place]
    assert np.sign(found.value) == sign
    assert f"loss {loss:.2f} at checkpoint-{STEPS[place]}" in found.message


def test_a_loss_within_its_error_is_no_fault(folder: Path) -> None:
    losses = [*_LOSSES[:6], 4.3, *_LOSSES[7:]]
    assert check_series(_with_losses(folder, losses, error=0.1)).rows == ()
    assert _only(check_series(_with_losses(folder, losses)), "K6", "warning").update == STEPS[6]


# -- K7 to K9 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["transformer.h.1.attn.c_attn.weight", "transformer.ln_f.bias"])
def test_numbers_that_are_none(folder: Path, value: float, name: str) -> None:
    def spoil(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        tensors[name].view(-1)[0] = value
        return tensors

    _edit(folder, 13, spoil)
    found = _only(_checks(folder), "K7")
    assert found.message == f"{name} of checkpoint-13 is not finite: left out"


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_a_constant_matrix(folder: Path, value: float) -> None:
    name = "transformer.h.0.mlp.c_fc.weight"
    _edit(folder, 13, lambda tensors: tensors | {name: torch.full_like(tensors[name], value)})
    assert _only(_checks(folder), "K7").message == f"all values of {name} in checkpoint-13 are the same: left out"


def test_a_constant_matrix_of_all_or_of_step_0_is_no_fault(folder: Path) -> None:
    name = "transformer.h.0.mlp.c_fc.weight"
    _edit(folder, 0, lambda tensors: tensors | {name: torch.zeros_like(tensors[name])})
    assert _only(_checks(folder), "K7", "note").update == 0
    for update in STEPS[1:]:
        _edit(folder, update, lambda tensors: tensors | {name: torch.zeros_like(tensors[name])})
    assert _only(_checks(folder), "K7", "note").update == 0


def test_another_vocabulary(folder: Path) -> None:
    _config(folder, 9, vocab_size=90)

    def grow(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        name = "transformer.wte.weight"
        return tensors | {name: torch.cat([tensors[name], tensors[name][:10]])}

    _edit(folder, 9, grow)
    (size,) = {one.weight.config["vocab_size"] for one in _weighed(folder) if one.weight and one.update != 9}
    text = f"checkpoint-9: vocabulary 90 here, {size} at checkpoint-0"
    assert _only(_checks(folder), "K8", "note").message == f"{text}: rows of padding"
    (folder / "checkpoint-9" / "tokenizer.json").unlink()
    assert _only(_checks(folder), "K8").message == text


def test_another_configuration(folder: Path) -> None:
    _config(folder, 9, tie_word_embeddings=False)
    assert _only(_checks(folder), "K8").message == "checkpoint-9: tie word embeddings false here, true at checkpoint-0"


def test_what_a_configuration_says_of_no_model_is_left_alone(folder: Path) -> None:
    _config(folder, 9, transformers_version="4.1", use_cache=False, attn_pdrop=0.3, hidden_dropout_prob=0.1)
    assert _checks(folder).rows == ()


def test_another_tokenizer(folder: Path) -> None:
    path = folder / "checkpoint-9" / "tokenizer.json"
    entries = json.loads(path.read_text())
    entries["truncation"] = {"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    path.write_text(json.dumps(entries))
    assert _checks(folder).rows == ()  # what the last call left says nothing
    entries["model"]["vocab"] = dict(reversed(list(entries["model"]["vocab"].items()))) | {"new": 80}
    path.write_text(json.dumps(entries))
    assert _only(_checks(folder), "K8").message == "the tokenizer of checkpoint-9 is not that of checkpoint-0"


def test_missing_and_unexpected_tensors(folder: Path) -> None:
    gone = ["transformer.h.1.ln_1.weight", "transformer.h.1.mlp.c_proj.weight"]
    _edit(folder, 9, lambda tensors: {name: one for name, one in tensors.items() if name not in gone})
    _edit(folder, 19, lambda tensors: tensors | {"score.weight": torch.randn(2, 16)})
    rows = [row for row in _checks(folder).rows if row.check == "K9"]
    assert [(row.update, row.message) for row in rows] == [
        (9, f"checkpoint-9: 2 tensors missing: {', '.join(gone)}"),
        (19, "checkpoint-19: 1 tensor unexpected: score.weight"),
    ]


def test_a_file_that_cannot_be_read(folder: Path) -> None:
    path = _weights(folder, 9)
    path.write_bytes(path.read_bytes()[:100])
    found = _only(_checks(folder), "K9")
    assert found.message.startswith("checkpoint-9 cannot be read: ")


# -- K10 to K12 -------------------------------------------------------------------------------------------------------


def test_a_mix_of_precisions(folder: Path) -> None:
    _edit(folder, 9, lambda tensors: {name: one.to(torch.float16) for name, one in tensors.items()})
    found = _only(_checks(folder), "K10", "warning")
    assert found.message == "checkpoint-9 is stored in float16, most others in float32"


def test_rounding_above_what_has_changed(folder: Path) -> None:
    seen = [one for one in _weighed(folder) if one.update in (0, 2, 4)]
    assert all(one.weight for one in seen)
    dtypes = dict.fromkeys(seen[0].weight.tensors.dtypes, "bfloat16")
    stored = [
        dataclasses.replace(
            one,
            weight=dataclasses.replace(one.weight, tensors=dataclasses.replace(one.weight.tensors, dtypes=dtypes)),
            sketch=seen[0].sketch + (one.sketch - seen[0].sketch) * 1e-3,
        )
        for one in seen
    ]
    found = [row for row in check_series(stored).rows if row.check == "K10"]
    assert [row.update for row in found] == [2, 4]
    assert all(row.value < row.limit == 1.66e-3 for row in found)


def test_a_step_other_than_the_name(folder: Path) -> None:
    path = folder / "checkpoint-27" / "trainer_state.json"
    path.write_text(json.dumps({"global_step": 30}))
    found = _only(_checks(folder), "K11")
    assert found.message == "checkpoint-27 was saved at step 30"
    assert found.update == 30


def test_a_step_that_two_claim(folder: Path) -> None:
    seen = _weighed(folder)
    twice = [*seen, dataclasses.replace(seen[4], name="step-9", weight=seen[5].weight)]
    rows = [row for row in check_series(twice).rows if row.check == "K11"]
    assert [row.name for row in rows] == ["checkpoint-9", "step-9"]
    assert rows[0].message == "step 9 is claimed by checkpoint-9 and step-9"


def test_what_is_missing_is_listed(folder: Path) -> None:
    missing = [Missing(name="step30", update=30, why="it holds no weights")]
    (found,) = check_series(_weighed(folder), missing).rows
    assert (found.check, found.level, found.message) == ("K12", "warning", "step30: it holds no weights")


def test_a_norm_that_jumps(folder: Path) -> None:
    name = "transformer.wpe.weight"
    _edit(folder, 27, lambda tensors: tensors | {name: tensors[name] * 2})
    found = [row for row in _checks(folder).rows if row.check == "K12"]
    assert found[0].level == "note"
    assert name in found[0].message
    assert found[0].value == pytest.approx(2, rel=0.05)


# -- weighing ---------------------------------------------------------------------------------------------------------


def test_a_sketch_keeps_distances(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [weigh(folder / f"checkpoint-{update}")[1] for update in (0, 50)]
    monkeypatch.setattr("infoflow.subjects.over_training.measures._weighing.SKETCHED", 3000)
    drawn = [weigh(folder / f"checkpoint-{update}")[1] for update in (0, 50)]
    assert len(drawn[0]) < len(whole[0]) / 2
    exact, estimated = (float(np.linalg.norm(pair[0] - pair[1])) for pair in (whole, drawn))
    assert estimated == pytest.approx(exact, rel=0.05)


def test_weights_and_json(folder: Path) -> None:
    weight, _ = weigh(folder / "checkpoint-4")
    assert Weight.from_json(json.loads(json.dumps(weight.to_json()))) == weight
    assert weight.dtype == "float32"


def test_bin_files_and_safetensors_weigh_the_same(folder: Path) -> None:
    before, sketch = weigh(folder / "checkpoint-4")
    path = _weights(folder, 4)
    torch.save(load_file(path), path.with_name("pytorch_model.bin"))
    path.unlink()
    after, again = weigh(folder / "checkpoint-4")
    assert after.digest == before.digest
    assert (again == sketch).all()
