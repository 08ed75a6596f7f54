"""Sums over cells against explicit masks, for every family; heads own what the anatomy says; sums add up."""

import dataclasses

import numpy as np
import pytest
import torch
from models.conftest import FAMILIES, build

from infoflow.dynamics import Cell, Cells, find_cells
from infoflow.foundation import UserError
from infoflow.models import Model, load_model


@pytest.fixture(scope="module", params=FAMILIES)
def family(request) -> tuple[Model, Cells, list[torch.Tensor]]:
    model = load_model(build(request.param))
    generator = torch.Generator().manual_seed(3)
    tensors = [torch.randn(p.shape, generator=generator, dtype=torch.float64) for _, p in learned(model)]
    return model, find_cells(model.module, model.anatomy), tensors


def learned(model: Model) -> list[tuple[str, torch.nn.Parameter]]:
    """Marian's sinusoidal positions, for one, are not."""
    return [(name, p) for name, p in model.module.named_parameters() if p.requires_grad]


def by_masks(model: Model, tensors: list[torch.Tensor]) -> dict[tuple, float]:
    """Component, stack, layer, kind → sum, one group of the anatomy at a time."""
    values = dict(zip((name for name, _ in learned(model)), tensors, strict=True))
    sums: dict[tuple, float] = {}
    for group in model.anatomy.parameter_groups:
        if group.slice.parameter not in values:
            continue
        key = group.component, group.stack or "", -1 if group.layer is None else group.layer, group.kind or ""
        value = values[group.slice.parameter]
        sums[key] = sums.get(key, 0.0) + float(value[group.slice.mask(value)].sum())
    return sums


def test_sums_are_those_of_explicit_masks(family) -> None:
    model, cells, tensors = family
    sums = cells.sums(tensors).numpy()
    grouped = np.bincount(cells.merged(cells.groups), sums)
    slow = by_masks(model, tensors)
    assert {tuple(group)[:4] for group in cells.groups} == set(slow)
    for group, value in zip(cells.groups, grouped, strict=True):
        assert value == pytest.approx(slow[tuple(group)[:4]], abs=1e-9)


def test_nothing_is_lost_or_counted_twice(family) -> None:
    model, cells, tensors = family
    assert cells.sizes.sum() == sum(p.numel() for _, p in learned(model))
    assert float(cells.sums(tensors).sum()) == pytest.approx(float(sum(t.sum() for t in tensors)), abs=1e-9)
    ones = cells.sums([torch.ones_like(tensor) for tensor in tensors]).numpy()
    assert ones.tolist() == cells.sizes.tolist()


def test_a_head_owns_its_rows_and_columns(family) -> None:
    model, cells, tensors = family
    values = dict(zip((name for name, _ in learned(model)), tensors, strict=True))
    sums = dict(zip(cells.cells, cells.sums(tensors).tolist(), strict=True))
    for one in model.anatomy.attentions():
        if model.anatomy.stack(one.stack).shared and one.layer > 0:
            continue
        for part in ("query", "key", "value", "output"):
            projection = getattr(one, part)
            if projection is None or projection.num_heads != one.num_heads:
                continue
            for head in range(one.num_heads):
                own = sum(float(piece.take(values[piece.parameter]).sum()) for piece in projection.head(head))
                assert sums[Cell(part, one.stack, one.layer, one.kind, head)] == pytest.approx(own, abs=1e-9)
        bias = values.get(f"{one.output_projection}.bias")
        if bias is not None:
            cell = Cell("output", one.stack, one.layer, one.kind, -1)
            assert sums[cell] == pytest.approx(float(bias.sum()), abs=1e-9)


def test_the_largest_of_each_cell(family) -> None:
    _, cells, tensors = family
    maxima = dict(zip(cells.cells, cells.maxima(tensors).tolist(), strict=True))
    assert max(maxima.values()) == max(float(tensor.max()) for tensor in tensors)
    for cell, value in maxima.items():
        marked = [tensor * 0 for tensor in tensors]
        for tensor, mark in zip(tensors, marked, strict=True):
            mark[tensor == value] = 1.0
        assert dict(zip(cells.cells, cells.sums(marked).tolist(), strict=True))[cell] == 1.0


def test_transposed_heads_are_columns_of_queries_and_rows_of_outputs() -> None:
    model = load_model(build("gpt2"))
    cells = find_cells(model.module, model.anatomy)
    attention = next(model.anatomy.attentions())
    width, size = 16, 16 // attention.num_heads
    marked = [torch.zeros_like(p) for p in model.module.parameters()]
    names = [name for name, _ in model.module.named_parameters()]
    prefix = attention.output_projection.removesuffix("c_proj")
    marked[names.index(f"{prefix}c_attn.weight")][:, width + size : width + 2 * size] = 1.0  # keys of head 1
    marked[names.index(f"{prefix}c_proj.weight")][size : 2 * size] = 1.0  # outputs of head 1
    touched = {cell for cell, value in zip(cells.cells, cells.sums(marked).tolist(), strict=True) if value}
    assert touched == {Cell("key", "decoder", 0, "self", 1), Cell("output", "decoder", 0, "self", 1)}


def test_biases_apart_are_components_of_their_own() -> None:
    model = load_model(build("bert"))
    joined, apart = (find_cells(model.module, model.anatomy, separate_bias=separate) for separate in (False, True))
    assert {group.component for group in apart.groups} > {"query bias", "mlp_in bias", "norm bias", "head bias"}
    assert not any("bias" in group.component for group in joined.groups)
    tensors = [torch.randn(p.shape, generator=torch.Generator().manual_seed(0)) for p in model.module.parameters()]
    assert float(joined.sums(tensors).sum()) == pytest.approx(float(apart.sums(tensors).sum()), abs=1e-4)


def test_frozen_parameters_are_left_out_and_unknown_ones_refused() -> None:
    model = load_model(build("bert"))
    model.module.get_input_embeddings().weight.requires_grad_(False)
    cells = find_cells(model.module, model.anatomy)
    assert "embeddings" not in {group.component for group in cells.groups}
    groups = tuple(group for group in model.anatomy.parameter_groups if group.component != "query")
    with pytest.raises(UserError, match=r"query\.weight belongs to no component"):
        find_cells(model.module, dataclasses.replace(model.anatomy, parameter_groups=groups))
