"""Composition against whole matrices, its exact control, and a pair of heads that compose."""

import numpy as np
import pytest
import torch
from support.compiled import compiled

from infoflow.head_weights import HeadComposition
from infoflow.models import load_model

from .test_head_weights import INDUCTION, gpt2, llama


def frobenius(first, second):
    return np.linalg.norm(first @ second) / np.linalg.norm(first) / np.linalg.norm(second)


def test_scores_are_those_of_the_whole_matrices():
    module = gpt2(seed=5)
    table = HeadComposition(strongest=9).of(load_model(module))
    centre = np.eye(24) - 1 / 24
    ov, qk = {}, {}
    for layer, block in enumerate(module.transformer.h):
        norm = centre @ np.diag(block.ln_1.weight.detach().double().numpy())
        query, key, value = np.split(block.attn.c_attn.weight.detach().double().numpy(), 3, axis=1)
        output = block.attn.c_proj.weight.detach().double().numpy()
        for head in range(3):
            own = slice(8 * head, 8 * head + 8)
            ov[layer, head] = norm @ value[:, own] @ output[own] @ centre
            qk[layer, head] = norm @ query[:, own] @ (norm @ key[:, own]).T
    assert len(table) == 3 * 3 * 3
    for row in table.itertuples():
        later, earlier = (row.layer, row.head), (row.earlier_layer, row.earlier_head)
        second = {"query": qk[later], "key": qk[later].T, "value": ov[later]}[row.via]
        assert row.value == pytest.approx(frobenius(ov[earlier], second), rel=1e-5)
        assert row.baseline == pytest.approx(24**-0.5)


def test_the_control_is_that_of_random_rotations():
    """The mean of the square is exactly 1 / D; its spread is that of 2,000 random rotations."""
    table = HeadComposition(strongest=1).of(load_model(llama(kv=4)))
    assert table["baseline"].iloc[0] == pytest.approx(16**-0.5)
    rng = np.random.default_rng(0)
    first, second = rng.standard_normal((16, 4)) * [4, 2, 1, 1], rng.standard_normal((16, 4)) * [3, 1, 1, 1]
    squares = []
    for _ in range(2000):
        rotation = np.linalg.qr(rng.standard_normal((16, 16)))[0]
        squares.append(frobenius(first.T, rotation @ second) ** 2)
    fourth = [np.sum(np.linalg.svd(one, compute_uv=False) ** 4) for one in (first, second)]
    sizes = [np.linalg.norm(one) ** 2 for one in (first, second)]
    spread = np.sqrt(2 * fourth[0] * fourth[1]) / (16 * sizes[0] * sizes[1])
    assert np.mean(squares) == pytest.approx(1 / 16, rel=0.03)
    assert np.std(squares) == pytest.approx(spread, rel=0.2)


def test_a_pair_of_heads_that_compose_is_found():
    table = HeadComposition().of(compiled(INDUCTION))
    best = table.loc[table["z"].idxmax()]
    assert best[["layer", "head", "via", "earlier_layer", "earlier_head"]].tolist() == [1, 0, "key", 0, 0]
    assert best["z"] > 20
    assert table.drop(best.name)["z"].max() < 0


def test_random_weights_do_not_compose():
    module = llama(kv=4)
    torch.manual_seed(2)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.ones_like(parameter) if "norm" in name else torch.randn_like(parameter))
    table = HeadComposition(strongest=4).of(load_model(module))
    assert abs(table["z"].mean()) < 0.7
    assert table["z"].abs().max() < 6
