"""Rollout, flow and the distance between heads."""

import math

import networkx as nx
import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon

from infoflow.foundation import UserError
from infoflow.heads import attention_flow, attention_rollout, js_distance


def attention(layers=3, batch=2, heads=2, tokens=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(2 * torch.randn(layers, batch, heads, tokens, tokens, generator=generator).double(), dim=-1)


def padded(weights, left):
    pad = (2, 0) if left else (0, 2)
    mask = torch.nn.functional.pad(torch.ones(weights.shape[1], weights.shape[3], dtype=torch.bool), pad)
    bigger = torch.nn.functional.pad(weights, (*pad, *pad), value=math.nan)
    bigger[..., mask[0], :] = bigger[..., mask[0], :].nan_to_num(0)
    return bigger, mask


def test_rollout_multiplies_the_layers():
    weights = attention()
    rolled = attention_rollout(weights)
    for b in range(2):
        product = np.eye(5)
        for layer in range(3):
            mixed = 0.5 * np.mean([weights[layer, b, h].numpy() for h in range(2)], axis=0) + 0.5 * np.eye(5)
            product = mixed @ product
            np.testing.assert_allclose(rolled[layer, b], product, atol=1e-12)
    torch.testing.assert_close(rolled.sum(3), torch.ones(3, 2, 5).double())


def flow_by_networkx(mixed, i, j):
    graph = nx.DiGraph()
    for layer, matrix in enumerate(mixed):
        for q, row in enumerate(matrix):
            for k, capacity in enumerate(row):
                graph.add_edge((layer + 1, q), (layer, k), capacity=float(capacity))
    return nx.maximum_flow_value(graph, (len(mixed), i), (0, j))


def test_flow_is_the_maximum_flow_of_the_layered_graph():
    weights = attention(batch=1, tokens=4)
    mixed = (0.5 * weights.mean(2) + 0.5 * torch.eye(4))[:, 0].numpy()
    expected = np.array([[flow_by_networkx(mixed, i, j) for j in range(4)] for i in range(4)])
    expected /= expected.sum(1, keepdims=True)
    np.testing.assert_allclose(attention_flow(weights)[0], expected, atol=1e-6)


def test_flow_through_one_layer_is_its_attention():
    weights = attention(layers=1)
    expected = 0.5 * weights[0].mean(1) + 0.5 * torch.eye(5)
    torch.testing.assert_close(attention_flow(weights), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("function", [attention_rollout, attention_flow])
def test_padding_changes_nothing(function, left):
    weights = attention()
    bigger, mask = padded(weights, left)
    result = function(bigger, mask)
    real = mask[0].nonzero().squeeze(1)
    torch.testing.assert_close(result[..., real[:, None], real], function(weights), atol=1e-6, rtol=0)
    assert result[..., ~mask[0], :].eq(0).all()
    assert result[..., ~mask[0]].eq(0).all()


@pytest.mark.parametrize("smoothing", [0.0, 0.001])
def test_js_distance_agrees_with_scipy(smoothing):
    weights = attention(layers=2)
    valid = torch.ones(2, 5, dtype=torch.bool)
    distance = js_distance(weights, valid, smoothing=smoothing)
    heads = [(layer, head) for layer in range(2) for head in range(2)]
    smooth = (1 - smoothing) * weights + smoothing / 5
    for a, (layer_a, head_a) in enumerate(heads):
        for b, (layer_b, head_b) in enumerate(heads):
            expected = sum(
                jensenshannon(smooth[layer_a, s, head_a, q], smooth[layer_b, s, head_b, q]) ** 2
                for s in range(2)
                for q in range(5)
            )
            assert float(distance[a, b]) == pytest.approx(expected, abs=1e-9)


def test_js_distance_of_heads_that_share_nothing_is_ln_2_per_query():
    weights = torch.stack([torch.eye(4), torch.eye(4).roll(1, 1)])[None, None]
    valid = torch.ones(1, 4, dtype=torch.bool)
    torch.testing.assert_close(js_distance(weights, valid)[0, 1], torch.tensor(4 * math.log(2)))
    torch.testing.assert_close(js_distance(weights, valid, reduction="mean")[0, 1], torch.tensor(math.log(2)))


@pytest.mark.parametrize("left", [False, True])
def test_padding_does_not_change_js_distance(left):
    weights = attention()
    bigger, mask = padded(weights, left)
    expected = js_distance(weights, torch.ones(2, 5, dtype=torch.bool))
    torch.testing.assert_close(js_distance(bigger, mask), expected)
    assert expected.diagonal().eq(0).all()


def test_js_distance_names_mistakes():
    with pytest.raises(UserError, match="reduction must be"):
        js_distance(attention(), torch.ones(2, 5), reduction="max")


def test_no_sentences_have_no_flow():
    with pytest.raises(UserError, match="at least one sentence"):
        attention_flow(attention()[:, :0])
    assert attention_rollout(attention()[:, :0]).shape == (3, 0, 5, 5)
