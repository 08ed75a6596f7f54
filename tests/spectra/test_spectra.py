"""Entropies, curvature and invariance on arrays: known spectra, plain loops, and numbers of the published code."""

import math

import numpy as np
import pytest
import torch

from infoflow.foundation import UserError, stream
from infoflow.spectra import matrix_entropy
from infoflow.subjects.spectra.measures import curvature, dime, directions, info_nce, lidar, weighed_entropy


@pytest.fixture
def views():
    random = np.random.default_rng(69)
    x = random.standard_normal((12, 8))
    y = x + 0.3 * random.standard_normal((12, 8))
    return directions(torch.from_numpy(x)), directions(torch.from_numpy(y))


def entropy(matrix, alpha):
    """Of a symmetric matrix, one eigenvalue after another."""
    shares = [max(float(value), 0.0) for value in np.linalg.eigvalsh(np.asarray(matrix))]
    shares = [value / sum(shares) for value in shares if value > 1e-13 * sum(shares)]
    if alpha == 1:
        return -sum(value * math.log(value) for value in shares)
    return math.log(sum(value**alpha for value in shares)) / (1 - alpha)


@pytest.mark.parametrize("alpha", [0.5, 1, 2, 3.5])
def test_known_spectra(alpha):
    assert matrix_entropy(torch.eye(7), alpha) == pytest.approx(math.log(7))
    assert matrix_entropy(torch.outer(torch.arange(1.0, 6.0), torch.ones(3)), alpha) == pytest.approx(0, abs=1e-6)
    assert matrix_entropy(torch.diag(torch.tensor([2.0, 2.0, 0.0])), alpha) == pytest.approx(math.log(2))
    assert math.isnan(matrix_entropy(torch.zeros(3, 2), alpha))


@pytest.mark.parametrize("alpha", [0.5, 1, 2])
@pytest.mark.parametrize("shape", [(5, 9), (9, 5)])
def test_no_rotation_order_or_scale_changes_the_entropy(shape, alpha):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rotation = torch.linalg.qr(torch.randn(shape[1], shape[1], dtype=torch.float64)).Q
    found = matrix_entropy(x, alpha)
    assert found == pytest.approx(entropy(x @ x.mT, alpha))
    assert found == pytest.approx(entropy(x.mT @ x, alpha))
    for same in (x @ rotation, x.flip(0), 7 * x):
        assert matrix_entropy(same, alpha) == pytest.approx(found)
    assert 0 <= found <= math.log(5)


def test_the_numbers_of_the_published_code(views):
    """Values that the authors' functions gave for the same arrays and, for DiME, the same permutations."""
    x, y = views
    for alpha, published in {1: 1.799072198557542, 2: 1.6627548470829199, 3: 1.5773028048827071}.items():
        assert matrix_entropy(x, alpha) == pytest.approx(published, abs=1e-12)
    assert info_nce(x, y).value == pytest.approx(2.3838848340748515, abs=1e-12)
    assert dime(x, y, 1).value == pytest.approx(0.06007582628232688, abs=1e-12)
    assert lidar(x, y, 1).value == pytest.approx(1.3429900407791138, abs=1e-5)  # its scatters are float32


@pytest.mark.parametrize("alpha", [1, 2])
@pytest.mark.parametrize("num", [3, 12])
def test_plain_loops(views, num, alpha):
    x, y = (view[:num] for view in views)
    logits = np.array([[float(a @ b) / 0.1 for b in y] for a in x])
    losses = [math.log(sum(np.exp(row))) - row[place] for place, row in enumerate(logits)]
    assert info_nce(x, y).value == pytest.approx(math.log(num) - np.mean(losses))

    between, within, mean = np.zeros((8, 8)), 1e-4 * np.eye(8), torch.cat([x, y]).mean(0).numpy()
    for a, b in zip(x.numpy(), y.numpy(), strict=True):
        middle = (a + b) / 2
        between += np.outer(middle - mean, middle - mean) / num
        within += (np.outer(a - middle, a - middle) + np.outer(b - middle, b - middle)) / (2 * num)
    values, vectors = np.linalg.eigh(within)
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    assert lidar(x, y, alpha).value == pytest.approx(entropy(root @ between @ root, alpha), abs=1e-8)

    own, other = x @ x.mT, y @ y.mT
    shuffled = 0.0
    for number in range(3):
        order = stream("dime", number).permutation(num)
        shuffled += entropy(own * other[order][:, order], alpha) / 3
    assert dime(x, y, alpha).value == pytest.approx(shuffled - entropy(own * other, alpha))


def test_recognised_texts_have_more_of_everything(views):
    x, y = views
    for measure in (info_nce, lambda a, b: dime(a, b, 1)):
        assert measure(x, y).value > measure(x, y.roll(1, 0)).value
    assert info_nce(x, x).value <= math.log(12)


def weighted(x, y, weights, alpha):
    """Each statistic of texts with weights, as sums."""
    w, total = np.asarray(weights), np.sum(weights)
    x, y = x.numpy(), y.numpy()
    root = np.sqrt(w)[:, None]
    logits = x @ y.T / 0.1 + np.log(w)
    losses = np.log(np.exp(logits).sum(1)) - np.einsum("nd,nd->n", x, y) / 0.1
    middle = (x + y) / 2
    middle = middle - (w @ middle) / total
    half = (x - y) / 2
    within = (half * w[:, None]).T @ half / total + 1e-4 * np.eye(x.shape[1])
    values, vectors = np.linalg.eigh(within)
    white = vectors @ np.diag(values**-0.5) @ vectors.T
    between = (middle * w[:, None]).T @ middle / total
    own, other = x @ x.T, y @ y.T
    joint = -entropy(root * (own * other) * root.T, alpha)
    for number in range(3):
        order = stream("dime", number).permutation(len(x))
        pair = (w * w[order])[:, None] ** 0.25  # a row holds two texts
        joint += entropy(pair * (own * other[order][:, order]) * pair.T, alpha) / 3
    return {
        "dime": joint,
        "entropy": entropy((root * x) @ (root * x).T, alpha),
        "infonce": math.log(total) - float(w @ losses) / total,
        "lidar": entropy(white @ between @ white, alpha),
    }


@pytest.mark.parametrize("alpha", [1, 2])
@pytest.mark.parametrize("width", [4, 8])
def test_derivatives_by_the_weight_of_a_text(views, width, alpha):
    """Error bars rest on them: a slightly heavier text moves the statistic by its derivative."""
    x, y = (view[:, :width] for view in views)
    found = {"entropy": weighed_entropy(x, alpha), "infonce": info_nce(x, y), "lidar": lidar(x, y, alpha)}
    found["dime"] = dime(x, y, alpha)
    for text in (0, 5, 11):
        ends = [weighted(x, y, np.where(np.arange(12) == text, 1 + step, 1.0), alpha) for step in (-1e-5, 1e-5)]
        for name, own in found.items():
            slope = (ends[1][name] - ends[0][name]) / 2e-5
            assert float(own.by_weight[text]) == pytest.approx(slope, abs=1e-6), name


def test_curvature_of_known_paths():
    line = torch.arange(5.0, dtype=torch.float64)[:, None] * torch.tensor([1.0, -2.0, 3.0])
    assert float(curvature(line)) == pytest.approx(0, abs=1e-6)
    assert float(curvature(torch.tensor([[0.0], [1.0], [0.0], [1.0]]))) == pytest.approx(math.pi)
    steps = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [2.0, 1.0], [2.0, 2.0]])
    assert float(curvature(steps)) == pytest.approx(math.pi / 2)
    still = torch.cat([steps[:3], steps[2:]])  # a step of length 0 has no angle, and hides two
    assert float(curvature(still)) == pytest.approx(math.pi / 2)
    assert math.isnan(float(curvature(torch.ones(4, 2))))
    layers = torch.stack([steps, 3 * steps @ torch.tensor([[0.0, 1.0], [-1.0, 0.0]]) + 5])
    assert curvature(layers).tolist() == pytest.approx([math.pi / 2] * 2)


@pytest.mark.parametrize("alpha", [0, -1, math.inf, math.nan])
def test_orders_that_are_none(alpha):
    with pytest.raises(UserError, match="alpha, the order of the entropy, must be a number above 0"):
        matrix_entropy(torch.eye(2), alpha)


def test_states_that_are_no_matrix():
    with pytest.raises(UserError, match="x must be a matrix"):
        matrix_entropy(torch.ones(3))
    with pytest.raises(UserError, match="x must be finite"):
        matrix_entropy(torch.full((2, 2), math.nan))
