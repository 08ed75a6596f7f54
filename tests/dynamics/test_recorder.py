"""The streamed recording against stored weights; what it leaves in training: nothing; resuming; parts; other rules."""

import os
import signal
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from dynamics.recorded import SCRIPT, run
from safetensors.torch import load_file
from support.forked import run_script
from training.tiny import tiny_config, tiny_data, tiny_model

from infoflow.dynamics import (
    LossChangeRecorder,
    RecordConfig,
    Recording,
    bin_edges,
    evaluation_set,
    loss_change_allocation,
)
from infoflow.foundation import UserError
from infoflow.models import load_model
from infoflow.objectives import CausalLM, MaskedLM, Translation
from infoflow.training import TrainingHook, TrainingInterrupted, evaluate, train

pytestmark = pytest.mark.slow

KEYS = ["component", "stack", "layer", "kind"]


class StoreWeights(TrainingHook):
    """Keeps the weights before every update and after the last, as the published code does."""

    name = "store"

    def __init__(self) -> None:
        self.weights: list[dict[str, torch.Tensor]] = []

    def on_step_begin(self, step) -> None:
        self.weights.append({name: p.detach().clone() for name, p in step.module.named_parameters()})

    def on_train_end(self, module) -> None:
        self.weights.append({name: p.detach().clone() for name, p in module.named_parameters()})


class StopAfter(TrainingHook):
    name = "stop"

    def on_step_end(self, step) -> None:
        if step.update == 5:
            os.kill(os.getpid(), signal.SIGTERM)


def make_recorder(objective, config: RecordConfig | None = None, parts: int = 2, held_out: bool = False, **options):
    """A recorder on 20 or so of the tiny training sentences."""
    sets = [evaluation_set("train", objective, tiny_data(), 150, parts=parts, **options)]
    if held_out:
        sets.append(evaluation_set("held-out", objective, tiny_data(30, seed=7), 80, parts=parts, **options))
    anatomy = load_model(tiny_model(objective)).anatomy
    return LossChangeRecorder(sets, anatomy, config or RecordConfig(windows=6))


def record(objective, out: Path, *hooks, **options) -> tuple[LossChangeRecorder, Path]:
    recorder = make_recorder(objective, **options)
    result = train(objective, tiny_config(), tiny_data(), tiny_model(objective), out, hooks=[recorder, *hooks])
    return recorder, result.model


def loss_of(objective, module, one):
    """The mean loss over a whole evaluation set as a function of a dict of weights."""

    def loss(weights):
        previous = {name: p.detach().clone() for name, p in module.named_parameters()}
        total, count = torch.zeros(()), 0
        term = next(iter(objective.term_weights))
        with torch.nn.utils.stateless._reparametrize_module(module, weights, tie_weights=True):
            for part in one.parts:
                for batch in part:
                    terms = one.objective.loss(module, batch, batch.noise)
                    total, count = total + terms[term].total, count + terms[term].count
        assert all(torch.equal(p, previous[name]) for name, p in module.named_parameters())
        return total / count

    return loss


@pytest.fixture(scope="module")
def masked(tmp_path_factory) -> tuple[LossChangeRecorder, Path]:
    """A masked LM recorded on two sets, a window for each update; tests do not change it."""
    return record(MaskedLM(), tmp_path_factory.mktemp("masked"), config=RecordConfig(windows=100), held_out=True)


def frame(recorder: LossChangeRecorder, name: str, **where) -> pd.DataFrame:
    table = Recording.of(recorder).tables[f"allocation_{name}"]
    for column, value in where.items():
        table = table[table[column] == value]
    return table


@pytest.mark.parametrize(
    ("objective", "rule", "every"),
    [(MaskedLM(), "trapezoid", 1), (Translation(), "simpson", 3), (CausalLM(token_dropout=0.1), "first-order", 1)],
)
def test_streamed_allocations_are_those_of_stored_weights(objective, rule, every: int, tmp_path: Path) -> None:
    store = StoreWeights()
    config = RecordConfig(rule=rule, every=every, windows=100)
    recorder, _ = record(objective, tmp_path, store, config=config)
    module = tiny_model(objective).eval()
    loss = loss_of(objective, module, recorder.targets.sets[0])
    ends = [*range(0, 14, every), 14]
    totals = {name: torch.zeros_like(p) for name, p in module.named_parameters()}
    hurt = {name: torch.zeros_like(p, dtype=torch.int32) for name, p in module.named_parameters()}
    each: dict[str, list[torch.Tensor]] = {name: [] for name in totals}
    values: list[torch.Tensor] = []
    for window, (start, end) in enumerate(pairwise(ends)):
        allocation = loss_change_allocation(loss, store.weights[start], store.weights[end], rule=rule)
        stored = recorder.cells.sums([allocation[name] for name in recorder.cells.names]).numpy()
        streamed = recorder.history.sums_WGC[window, 0]
        np.testing.assert_allclose(streamed, stored, rtol=1e-3, atol=2e-6)
        for name, value in allocation.items():
            totals[name] += value
            hurt[name] += value > 0
            each[name].append(value)
            values.append(value.reshape(-1))
    assert recorder.history.ends_W2.tolist() == [list(pair) for pair in pairwise(ends)]
    recording = Recording.of(recorder)
    differing = sum(int((recording.parameters[f"{name}:hurt"] != hurt[name]).sum()) for name in hurt)
    for name, stored in each.items():
        alone = torch.stack(stored)
        near = 1e-3 * alone.abs().max() + 1e-9
        for field, expected, error in (
            ("smallest", alone.amin(dim=0), near),
            ("total", alone.sum(dim=0), len(stored) * near),
            ("squares", alone.square().sum(dim=0), 3 * near * alone.abs().max()),
        ):
            assert (recording.parameters[f"{name}:{field}"] - expected).abs().max() <= error, (name, field)
    elements = sum(p.numel() for p in module.parameters())
    assert differing < 0.01 * elements  # values at the edge of rounding
    counts, edges = recorder.histogram.counts_GB, bin_edges()  # type: ignore[union-attr]
    assert counts.sum() == elements * (len(ends) - 1)
    moved = torch.cat(values)
    binned = np.array([int(((low <= moved) & (moved < high) & (moved != 0)).sum()) for low, high in edges])
    near = np.abs(counts.sum(axis=0) - binned)[np.arange(len(edges)) != len(edges) // 2]
    assert near.sum() < 0.02 * counts.sum()
    assert recording.tables["allocation_reliability"].set_index("statistic")["value"]["unused parameters"] == 0


def doubled(losses, start, end, panels: int):
    """The published rule: Simpson's panels double, up to 8, while a residual exceeds 5e-4."""
    while True:
        found = {name: loss_change_allocation(loss, start, end, splits=panels) for name, loss in losses.items()}
        residuals = [
            float((losses[name](dict(end)) - losses[name](dict(start))).detach())
            - float(sum(a.sum() for a in own.values()))
            for name, own in found.items()
        ]
        if max(map(abs, residuals)) <= 5e-4 or 2 * panels > 8:
            return found, panels
        panels *= 2


@pytest.mark.parametrize("splits", [1, 2])
def test_panels_double_as_with_stored_weights(splits: int, tmp_path: Path) -> None:
    store, objective = StoreWeights(), Translation()
    config = RecordConfig(rule="simpson", every=5, splits=splits, tolerance=5e-4, max_splits=8, windows=100)
    recorder, _ = record(objective, tmp_path, store, config=config, held_out=True)
    module = tiny_model(objective).eval()
    losses = {one.name: loss_of(objective, module, one) for one in recorder.targets.sets}
    panels = []
    for window, (start, end) in enumerate([(0, 5), (5, 10), (10, 14)]):
        found, used = doubled(losses, store.weights[start], store.weights[end], splits)
        panels.append(used)
        for row, one in enumerate(recorder.targets.sets):
            stored = recorder.cells.sums([found[one.name][name] for name in recorder.cells.names]).numpy()
            np.testing.assert_allclose(recorder.history.sums_WGC[window, row], stored, rtol=1e-3, atol=3e-6)
    assert max(panels) > splits  # else nothing was seen to double
    figures = frame(recorder, "reliability", set="train", rule="").set_index("statistic")["value"]
    assert figures["panels"] == pytest.approx(np.mean(panels))
    assert figures["largest number of panels"] == max(panels)


def test_sums_reconstruct_the_loss(tmp_path: Path) -> None:
    recorder, folder = record(
        Translation(), tmp_path, held_out=True, config=RecordConfig(rule="simpson", splits=2, windows=6)
    )
    windows = frame(recorder, "windows")
    assert set(windows["set"]) == {"train", "held-out"}
    for name in ("train", "held-out"):
        own = windows[windows["set"] == name]
        assert own["begin"].tolist() == [0, 3, 6, 9, 12]
        assert own["end"].tolist() == [3, 6, 9, 12, 14]
        assert own["loss_start"].tolist()[1:] == own["loss_end"].tolist()[:-1]
        change = own["loss_end"].iloc[-1] - own["loss_start"].iloc[0]
        assert own["allocated"].sum() == pytest.approx(change, rel=0.02)
        groups = frame(recorder, "groups", set=name)
        assert groups["value"].sum() == pytest.approx(own["allocated"].sum(), abs=1e-9)
        assert groups["share"].sum() == pytest.approx(1.0)
        steps = frame(recorder, "steps", set=name)
        assert steps.groupby(KEYS)["value"].sum().sum() == pytest.approx(groups["value"].sum(), abs=1e-9)
        heads = frame(recorder, "heads", set=name)
        attention = groups[groups["component"].isin(["query", "key", "value", "output"])]
        by_layer = attention.groupby(["stack", "kind", "layer"])["value"].sum()
        pd.testing.assert_series_equal(heads.groupby(["stack", "kind", "layer"])["value"].sum(), by_layer)
    loss = load_model(folder).module
    last = windows[windows["set"] == "train"]["loss_end"].iloc[-1]
    one = recorder.targets.sets[0]
    terms = [one.objective.loss(loss, batch, batch.noise) for part in one.parts for batch in part]
    total = sum(float(term["translation"].total.detach()) for term in terms)
    assert last == pytest.approx(total / one.totals["translation"], rel=1e-5)


def test_training_is_the_same_to_the_bit_with_and_without(masked, tmp_path: Path) -> None:
    plain = train(MaskedLM(), tiny_config(), tiny_data(), tiny_model(MaskedLM()), tmp_path / "plain").model
    _, inner_nodes = record(MaskedLM(), tmp_path / "inner", config=RecordConfig(rule="gauss-legendre"))
    for recorded in (masked[1], inner_nodes):
        one, other = (load_file(folder / "model.safetensors") for folder in (plain, recorded))
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_a_killed_recording_is_that_of_an_uninterrupted_one(tmp_path: Path) -> None:
    assert run_script(SCRIPT, tmp_path / "killed", "--die", "8") == -signal.SIGKILL
    for name in ("killed", "whole"):
        run(tmp_path / name)
    one, other = (Recording.read(tmp_path / name / "recording") for name in ("killed", "whole"))
    assert_same(one, other)


def assert_same(one: Recording, other: Recording) -> None:
    for name, table in one.tables.items():
        second = other.tables[name]
        if "statistic" in table:
            table, second = (frame[frame["statistic"] != "seconds"] for frame in (table, second))
        pd.testing.assert_frame_equal(table, second, check_exact=True)
    assert one.parameters.keys() == other.parameters.keys()
    assert all(torch.equal(one.parameters[name], other.parameters[name]) for name in one.parameters)


def test_a_recording_with_a_gap_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingInterrupted):
        train(MaskedLM(), tiny_config(), tiny_data(), tiny_model(MaskedLM()), tmp_path, hooks=[StopAfter()])
    with pytest.raises(UserError, match="begun without recording"):
        record(MaskedLM(), tmp_path)
    with pytest.raises(TrainingInterrupted):
        record(MaskedLM(), tmp_path / "b", StopAfter())
    with pytest.raises(UserError, match="begun with other settings"):
        record(MaskedLM(), tmp_path / "b", config=RecordConfig(every=2))


def test_parts_and_micro_batches_change_rounding_only(tmp_path: Path) -> None:
    sums = [
        record(MaskedLM(), tmp_path / f"{parts}-{tokens}", parts=parts, micro_tokens=tokens)[0].history.sums_WGC
        for parts, tokens in ((1, 4096), (1, 40), (4, 4096))
    ]
    for other in sums[1:]:
        np.testing.assert_allclose(other, sums[0], rtol=2e-3, atol=3e-6)


def test_each_part_is_an_evaluation_of_its_own(tmp_path: Path) -> None:
    recorder, _ = record(MaskedLM(), tmp_path, parts=3)
    one = recorder.targets.sets[0]
    losses = recorder._losses[0] * one.totals["masked-lm"] / np.array([c["masked-lm"] for c in one.counts])
    model = load_model(tmp_path / "model").module
    for part, loss in enumerate(losses):
        total = sum(float(one.objective.loss(model, b, b.noise)["masked-lm"].total.detach()) for b in one.parts[part])
        assert loss == pytest.approx(total / one.counts[part]["masked-lm"], rel=1e-5)
    assert sum(one.totals.values()) == sum(sum(counts.values()) for counts in one.counts)


def test_the_frozen_loss_is_the_one_that_training_evaluates(tmp_path: Path) -> None:
    objective = MaskedLM()
    data = tiny_data()
    recorder = make_recorder(objective, parts=1)
    everything = evaluation_set("train", objective, data, 10**6, parts=3)
    assert everything.sentences == 60
    recorder = LossChangeRecorder([everything], recorder.anatomy, RecordConfig(windows=3, every=14))
    model = tiny_model(objective)
    before = evaluate(objective, model, data)
    train(objective, tiny_config(), data, model, tmp_path, hooks=[recorder])
    after = evaluate(objective, model, data)
    assert recorder.history.losses_W2G[0, :, 0].tolist() == pytest.approx([before.loss, after.loss], rel=1e-6)


def test_counts_are_complete_and_agree_with_the_history(masked) -> None:
    recorder, _ = masked
    hurting = frame(recorder, "hurting")
    assert (hurting["hurt"] + hurting["helped"] + hurting["zero"]).to_numpy() == pytest.approx(1.0)
    steps = frame(recorder, "steps", set="held-out")
    groups = frame(recorder, "hurting", set="held-out", level="group").set_index(KEYS)
    for key, own in steps.groupby(KEYS):
        row = groups.loc[key]
        assert row["hurt"] == pytest.approx((own["value"] > 0).mean())
        assert row["largest"] == pytest.approx(own["value"].max())
        assert row["largest_update"] == own["end"].iloc[own["value"].argmax()]
        late = own.loc[own["value"] > 0, "end"]
        assert row["last_hurt"] == (late.max() if len(late) else -1)
    windows = frame(recorder, "windows", set="train")
    assert (windows["helped"] + windows["hurt"] + windows["zero"]).to_numpy() == pytest.approx(1.0)
    per_group = frame(recorder, "hurting", level="parameter")
    sizes = frame(recorder, "groups", set="train")["parameters"].to_numpy()
    assert np.average(per_group["hurt"], weights=sizes) == pytest.approx(windows["hurt"].mean())
    assert windows["alternated"].iloc[1:-1].between(0, 1).all()
    assert windows["top_share"].iloc[:-1].between(0.01, 1).all()
    assert windows["zero"].iloc[-1] == 1.0  # the last learning rate is 0


def test_reliability_names_residuals_halves_and_what_is_unused(masked) -> None:
    table = frame(masked[0], "reliability", set="train").set_index(["statistic", "rule"])["value"]
    error = {rule: table["mean residual", rule] for rule in ("first-order", "trapezoid", "simpson", "midpoint")}
    assert error["simpson"] < error["trapezoid"] < error["first-order"]
    assert table["chords", "trapezoid"] == table["chords", "simpson"] == 14
    assert -1 <= table["half correlation of groups", ""] <= 1
    assert 0.5 < table["sign agreement of parameters", ""] <= 1
    assert table["unused parameters", ""] == 0


def test_what_training_never_uses_is_reported(tmp_path: Path) -> None:
    recorder = make_recorder(MaskedLM())
    model = tiny_model(MaskedLM())
    model.bert.embeddings.extra_norm = torch.nn.LayerNorm(4)
    recorder.anatomy = load_model(model).anatomy
    train(MaskedLM(), tiny_config(updates=2), tiny_data(), model.train(), tmp_path, hooks=[recorder])
    table = frame(recorder, "reliability").set_index("statistic")["value"]
    assert table["unused parameters"] == 8


def test_sets_and_settings_are_checked() -> None:
    with pytest.raises(UserError, match="fewer than its 40 parts"):
        evaluation_set("train", MaskedLM(), tiny_data(), 20, parts=40)
    with pytest.raises(UserError, match="at least 1 token"):
        evaluation_set("train", MaskedLM(), tiny_data(), 0)
    with pytest.raises(UserError, match=r"dynamics\.every must be a whole number from 1 .* Got 0"):
        RecordConfig(every=0)
    with pytest.raises(UserError, match=r"whose panels can double\. Got tolerance 0\.1 and trapezoid"):
        RecordConfig(tolerance=0.1)
    with pytest.raises(UserError, match=r"max_splits must be at least dynamics.splits\. Got 2 and 4"):
        RecordConfig(rule="simpson", splits=4, max_splits=2, tolerance=0.1)
    half = tiny_model(MaskedLM()).to(torch.bfloat16)
    from infoflow.dynamics import FlatParameters

    with pytest.raises(UserError, match="needs float32 weights"):
        FlatParameters(half)
    with pytest.raises(UserError, match="frozen"):
        FlatParameters(half.requires_grad_(False))
