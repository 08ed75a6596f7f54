"""Closed-form maps against the conditions that define them."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from infoflow.alignment import least_squares_map


@pytest.fixture
def views():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 4))
    return x, x @ rng.standard_normal((4, 3)) + 0.3 * rng.standard_normal((60, 3)) + 2


def squared_error(parameters, x, y):
    weight, bias = parameters[:-3].reshape(4, 3), parameters[-3:]
    residual = x @ weight + bias - y
    return (residual**2).sum(), np.concatenate([(2 * x.T @ residual).ravel(), 2 * residual.sum(axis=0)])


def test_least_squares_agrees_with_a_numerical_search(views):
    x, y = views
    found = minimize(squared_error, np.zeros(15), args=(x, y), jac=True, tol=1e-12)
    fitted = least_squares_map(x, y)
    np.testing.assert_allclose(fitted.weight.numpy().ravel(), found.x[:-3], atol=1e-5)
    np.testing.assert_allclose(fitted.bias.numpy(), found.x[-3:], atol=1e-5)


def test_least_squares_ignores_directions_without_variation(views):
    x, y = views
    fitted = least_squares_map(np.concatenate([x, x[:, :1], np.full((60, 1), 7.0)], axis=1), y)
    np.testing.assert_allclose(fitted.weight[5], 0, atol=1e-12)
    np.testing.assert_allclose(fitted.weight[0], fitted.weight[4], atol=1e-10)  # the smallest weights share


def test_a_layer_computes_the_same(views):
    x, y = views
    fitted = least_squares_map(x, y)
    torch.testing.assert_close(
        fitted.module()(torch.tensor(x, dtype=torch.float32)).double(), fitted(torch.tensor(x)), rtol=1e-5, atol=1e-5
    )
