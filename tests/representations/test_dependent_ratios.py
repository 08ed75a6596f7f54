"""The error bar of the intrinsic dimension where the ratios of near points go together."""

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree

from infoflow.representations import spread_of_neighbours, two_neighbours


def cloud(rng, num=300, width=3):
    return rng.normal(size=(num, width)), np.repeat(rng.integers(0, 64, num // 3), 3)


def test_agrees_with_sums_over_all_pairs():
    points, blocks = cloud(np.random.default_rng(0), num=60)
    found = two_neighbours(torch.from_numpy(points))
    ratios, neighbours = found.log_ratios.numpy(), found.indices.numpy()
    u = ratios - ratios.mean()
    own = shared = 0.0
    for i in range(len(u)):
        for j in range(len(u)):
            if blocks[i] == blocks[j]:
                own += u[i] * u[j]
            elif j in neighbours[i] or i in neighbours[j]:
                shared += u[i] * u[j]
    expected = np.sqrt(max(1, 1 + shared / own))
    assert spread_of_neighbours(ratios, neighbours, blocks) == pytest.approx(expected)


def test_standard_error_is_the_spread_of_other_samples():
    rng, values, errors = np.random.default_rng(1), [], []
    for _ in range(300):
        points, blocks = cloud(rng)
        distances, indices = cKDTree(points).query(points, 3)
        ratios = np.log(distances[:, 2] / distances[:, 1])
        u = np.bincount(blocks, ratios - ratios.mean(), 64)
        values.append(1 / ratios.mean())
        plain = values[-1] * np.sqrt((u**2).sum()) / ratios.sum()
        errors.append((plain, plain * spread_of_neighbours(ratios, indices[:, 1:], blocks)))
    plain, wider = np.sqrt(np.square(errors).mean(axis=0)) / np.std(values)
    assert plain < 0.85 < 0.9 < wider < 1.1
