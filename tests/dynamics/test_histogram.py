"""Bins of allocations, against their edges one value at a time; every element lies in its own group."""

import torch
from models.conftest import build

from infoflow.dynamics import NUM_BINS, Histogram, bin_edges, bins_of, find_cells
from infoflow.models import load_model


def test_bins_lie_between_their_edges() -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = 10 ** (-17 + 19 * torch.rand(3000, generator=generator))
    values = torch.cat([sizes, -sizes, torch.zeros(5), torch.tensor([float("nan"), float("inf"), -float("inf")])])
    edges = bin_edges()
    assert len(edges) == NUM_BINS
    assert [low for low, _ in edges[1:]] == [high for _, high in edges[:-1]]  # no gap
    for value, place in zip(values.tolist(), bins_of(values).tolist(), strict=True):
        low, high = edges[place]
        if value == 0 or value != value:
            assert (low, high) == (0.0, 0.0)
        else:
            assert low * (1 + 1e-6) <= value <= high * (1 + 1e-6) or low * (1 - 1e-6) <= value <= high * (1 - 1e-6)


def test_every_element_is_counted_in_its_group() -> None:
    model = load_model(build("gpt2"))  # a fused matrix: queries, keys and values in one parameter
    cells = find_cells(model.module, model.anatomy)
    parameters = [p for p in model.module.parameters() if p.requires_grad]
    histogram = Histogram(cells, [p.shape for p in parameters], parameters[0])
    number = {group: 10.0 ** -(2 + row % 12) * 2 for row, group in enumerate(histogram.groups)}
    place = [number[cells.cells[cell].group] for cell in cells.cell_of_line.tolist()]
    pieces, start = [], 0
    for parameter, line in zip(parameters, cells.lines, strict=True):
        own = torch.tensor(place[start : start + line.size])
        start += line.size
        axes = [line.size if dim == line.dim else 1 for dim in range(parameter.ndim)]
        pieces.append((torch.ones_like(parameter) * own.view(axes)).reshape(-1))
    histogram.add(torch.cat(pieces))
    counts = histogram.counts_GB
    assert (counts > 0).sum(axis=1).tolist() == [1] * len(counts)
    for row, group in enumerate(histogram.groups):
        low, high = bin_edges()[int(counts[row].argmax())]
        assert low < number[group] < high
    assert counts.sum() == cells.sizes.sum()
