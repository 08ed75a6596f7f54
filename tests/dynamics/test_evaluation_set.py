"""Which sentences are evaluated, and in which batches."""

from itertools import product

import numpy as np
import pytest
from training.tiny import tiny_data

from infoflow.dynamics import evaluation_set
from infoflow.objectives import MaskedLM, Translation

PASS = 64
"""Tokens that a further pass costs on a CPU."""


def cheapest(source: np.ndarray, target: np.ndarray, budget: int) -> float:
    """The least cost over every way to cut the sorted sentences."""
    order = np.argsort(source + target, kind="stable")
    costs = []
    for cuts in product((False, True), repeat=len(order) - 1):
        pieces = np.split(order, np.flatnonzero(cuts) + 1)
        padded = [len(piece) * (source[piece].max() + target[piece].max()) for piece in pieces]
        if all(size <= budget or len(piece) == 1 for size, piece in zip(padded, pieces, strict=True)):
            costs.append(sum(padded) + PASS * len(pieces))
    return min(costs)


@pytest.mark.parametrize("objective", [MaskedLM(), Translation()])
@pytest.mark.parametrize("budget", [20, 100, 10_000])
def test_batches_cost_least(objective, budget: int, monkeypatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for seed in range(3):
        (batches,) = evaluation_set("train", objective, tiny_data(), 90, 1, seed, micro_tokens=budget).parts
        sides = [lengths(batch) for batch in batches]
        source, target = (np.concatenate(side) for side in zip(*sides, strict=True))
        assert 5 <= len(source) <= 14
        cost = sum(len(own) * (own.max() + other.max()) + PASS for own, other in sides)
        assert cost == cheapest(source, target, budget)


def lengths(batch) -> tuple[np.ndarray, np.ndarray]:
    """Of each sentence and of its translation, with all special tokens; the latter are 0 where none is read."""
    source = batch.input_ids * 0 + 1 if batch.attention_mask is None else batch.attention_mask
    if batch.decoder_input_ids is None:
        return source.sum(1).numpy(), np.zeros(len(source), dtype=int)
    return source.sum(1).numpy(), 1 + (batch.labels != -100).sum(1).numpy()


@pytest.mark.parametrize("objective", [MaskedLM(), Translation()])
def test_sentences_and_noise_depend_on_seed_and_id_alone(objective) -> None:
    sets = [
        evaluation_set("train", objective, tiny_data(), 200, parts, seed) for parts, seed in ((2, 0), (4, 0), (2, 1))
    ]
    words = [sorted(batch_rows(one)) for one in sets]
    assert words[0] == words[1]
    assert words[0] != words[2]
    assert sets[0].totals == sets[1].totals
    assert sets[0].tokens >= 200
    sizes = [sum(len(batch.input_ids) for batch in part) for part in sets[1].parts]
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == sets[1].sentences


def batch_rows(one) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Inputs and labels of every sentence, padding removed."""
    rows = []
    for part in one.parts:
        for batch in part:
            masks = batch.attention_mask if batch.attention_mask is not None else batch.input_ids * 0 + 1
            for ids, labels, mask in zip(batch.input_ids, batch.labels, masks, strict=True):
                kept = labels[labels != -100]
                rows.append((tuple(ids[mask.bool()].tolist()), tuple(kept.tolist())))
    return rows
