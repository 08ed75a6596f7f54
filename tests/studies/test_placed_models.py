"""Models that accelerate spread over devices or offloaded give the tables of the whole model, or a message."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import accelerate
import numpy as np
import pandas as pd
import pytest
import torch
from support.second_device import DEVICE, place, second_device
from support.tiny_heads import bert, llama, trees

from infoflow.flow import AbstractMeasure, collect
from infoflow.foundation import UserError, make_display, use_display
from infoflow.heads import (
    Ablation,
    Confidence,
    Importance,
    PatternScores,
    Relevance,
    SpecialGradient,
    TellingSentences,
    prune,
    relevance,
)
from infoflow.lenses import Lens
from infoflow.models import Model, load_model
from infoflow.representations import IntraSentence
from infoflow.studies import AnalysisPlan, standard_measures, untrained

CORPUS = trees(30)
SMALL = AnalysisPlan(
    occurrences=500, types=40, clusters=8, clusterings=1, distance_occurrences=1500, neighbour_occurrences=400,
    neighbours=5, frequency_occurrences=320, lens_steps=4, relevance_sentences=4, importance_sentences=20,
    ablation_sentences=6, probe_sentences=30,
)  # fmt: skip
BUILDS = {"masked": bert, "causal": llama}


@pytest.fixture(autouse=True)
def _quiet():
    with use_display(make_display("silent")):
        yield


def some() -> list[AbstractMeasure]:
    """States, attention, heads' outputs, weights, gradients, edits, and a readout."""
    return [
        *(IntraSentence(), Confidence(), TellingSentences(sentences=1), PatternScores(sequences=4)),
        *(Importance(sentences=6), SpecialGradient(sentences=6), Ablation(sentences=3, others=False), Lens(steps=2)),
    ]


def offloaded(model: Model, kind: str, folder: Path) -> Model:
    module, tokenizer = model.module, model.tokenizer
    if kind == "memory":
        return load_model(accelerate.cpu_offload(module, torch.device("cpu")), tokenizer)
    if kind == "disk":
        return load_model(accelerate.disk_offload(module, folder, torch.device("cpu")), tokenizer)
    blocks = [layer.block for stack in model.anatomy.stacks for layer in stack.layers]
    rest = [
        name
        for name, child in module.named_modules()
        if name
        and [*child.parameters(recurse=False), *child.buffers(recurse=False)]
        and not any(name.startswith(f"{block}.") for block in blocks)
    ]
    devices = {**dict.fromkeys(rest, "cpu"), **{name: ("disk", "cpu")[i % 2] for i, name in enumerate(blocks)}}
    return load_model(accelerate.dispatch_model(module, devices, main_device="cpu", offload_dir=folder), tokenizer)


def tables(model: Model, measures: Sequence[AbstractMeasure], folder: Path) -> dict[str, pd.DataFrame]:
    return dict(collect(model, CORPUS, measures, folder).tables)


@pytest.fixture(scope="module")
def standard(tmp_path_factory) -> Callable[..., dict[str, pd.DataFrame]]:
    """The standard tables of a whole model, computed once."""
    return cache(lambda build: tables(build(CORPUS), standard_measures(SMALL), tmp_path_factory.mktemp("whole")))


def assert_equal(found: Any, expected: dict[str, pd.DataFrame], tolerance: float = 1e-6) -> None:
    assert set(found) == set(expected)
    for name, frame in expected.items():
        assert len(frame) or name == "head_coreference", name  # the corpus has no coreference
        pd.testing.assert_frame_equal(found[name], frame, rtol=0, atol=tolerance, obj=name)


@pytest.mark.parametrize(("build", "kind"), [(bert, "half"), (llama, "memory"), (llama, "disk")])
@pytest.mark.filterwarnings("ignore")
def test_offloaded_models_give_the_same_tables(build, kind: str, tmp_path) -> None:
    whole, placed = build(CORPUS), offloaded(build(CORPUS), kind, tmp_path / "offload")
    assert any(one.is_meta for one in placed.module.parameters())
    assert placed.device == torch.device("cpu")
    assert placed.digest == whole.digest
    measures = [*some(), Relevance(sentences=2)]
    assert_equal(tables(placed, measures, tmp_path / "placed"), tables(whole, measures, tmp_path / "whole"))


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
@pytest.mark.filterwarnings("ignore")
def test_every_standard_measure_reads_offloaded_models(build, standard, tmp_path) -> None:
    placed = offloaded(build(CORPUS), "half", tmp_path / "offload")
    assert_equal(tables(placed, standard_measures(SMALL), tmp_path / "placed"), standard(build))


def _on_two_devices(build) -> Model:
    model = build(CORPUS)
    model.module.config.use_cache = False  # a cache is made of empty lists, which the pretended device cannot hold
    place(model.module, [model.anatomy.stacks[0].layers[-1].block])
    return load_model(model.module, model.tokenizer)


def _check_two_devices(build, measures: Sequence[AbstractMeasure], folder: Path, whole=None) -> None:
    whole = tables(build(CORPUS), measures, folder / "whole") if whole is None else whole
    with second_device():
        placed = _on_two_devices(build)
        assert {one.device for one in placed.module.parameters()} == {torch.device("cpu"), DEVICE}
        found = tables(placed, measures, folder / "placed")
    assert_equal(found, whole, 5e-5)  # other kernels; intervals of few sentences extrapolate their rounding


@pytest.mark.parametrize("build", [bert])
def test_layers_on_two_devices_give_the_same_tables(build, tmp_path) -> None:
    _check_two_devices(build, some(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
@pytest.mark.filterwarnings("ignore")
def test_every_standard_measure_reads_two_devices(build, standard, tmp_path) -> None:
    measures = [one for one in standard_measures(SMALL) if one.name != "head_relevance"]
    whole = {name: table for name, table in standard(build).items() if name != "head_relevance"}
    _check_two_devices(build, measures, tmp_path, whole)


def test_relevance_says_that_it_needs_one_device(tmp_path) -> None:
    with second_device(), pytest.raises(UserError, match="all layers on one device"):
        relevance(_on_two_devices(bert), CORPUS[0].text, method="alti")


@pytest.mark.filterwarnings("ignore")
def test_a_folder_that_does_not_fit_is_placed_by_accelerate(monkeypatch, tmp_path) -> None:
    bert(CORPUS, layers=6).module.save_pretrained(tmp_path / "model")
    whole = load_model(tmp_path / "model")
    size = sum(one.numel() for one in whole.module.parameters()) * 4
    monkeypatch.setattr("infoflow.models._placed.available_memory", lambda: int(0.7 * size))
    placed = load_model(tmp_path / "model")
    assert set(placed.module.hf_device_map.values()) == {"cpu", "disk"}
    assert placed.digest == whole.digest
    ids = torch.tensor([[5, 6, 7]])
    assert np.allclose(placed.module(ids).logits.detach(), whole.module(ids).logits.detach(), atol=1e-6)
    control = untrained(placed, 0)
    assert control.digest == untrained(whole, 0).digest
    assert load_model(tmp_path / "model", device="cpu").digest == whole.digest  # a named device is taken as it is


@pytest.mark.filterwarnings("ignore")
def test_what_needs_whole_weights_is_refused(tmp_path) -> None:
    placed = offloaded(bert(CORPUS), "disk", tmp_path / "offload")
    with pytest.raises(UserError, match=r"Removing heads needs a copy of the weights.*accelerate placed them"):
        prune(placed, [("encoder", "self", 0, 0)])
    with pytest.raises(UserError, match=r"cannot move\. Got device cpu\. Use auto"):
        load_model(placed.module, placed.tokenizer, "cpu")
    with torch.device("meta"):
        never = type(placed.module)(placed.module.config)
    with pytest.raises(UserError, match=r"They are on none \(never loaded\)"):
        load_model(never)
