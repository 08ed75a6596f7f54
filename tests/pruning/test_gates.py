"""Hard Concrete gates and exact-k gates against their definitions, simulation and the limits."""

import math

import pytest
import torch

from infoflow.foundation import UserError
from infoflow.pruning import HardConcrete, cooling, straight_through_gates, subset_gates, subset_mask


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def gates_with(values):
    gates = HardConcrete(len(values))
    with torch.no_grad():
        gates.log_alpha.copy_(torch.tensor(values))
    return gates


def test_probabilities_agree_with_simulation():
    gates = gates_with([-3.0, -1.0, 0.0, 0.7, 3.0])
    rng = generator()
    draws = torch.stack([gates.sample(rng) for _ in range(20_000)]).detach()
    torch.testing.assert_close((draws != 0).float().mean(0), gates.open_probability().detach(), atol=0.012, rtol=0)
    assert draws.min() == 0
    assert draws.max() == 1


def test_sample_follows_the_formula():
    gates = gates_with([-1.5, 0.2, 2.0])
    u = 1e-6 + (1 - 2e-6) * torch.rand(3, generator=generator(3))
    for found, noise, log_alpha in zip(gates.sample(generator(3)), u, gates.log_alpha, strict=True):
        s = 1 / (1 + math.exp(-(math.log(noise) - math.log(1 - noise) + log_alpha.item()) / 0.33))
        assert found.item() == pytest.approx(min(1, max(0, s * 1.2 - 0.1)), abs=1e-5)


def test_evaluation_gates_and_both_rules():
    bound = math.log(11)
    gates = gates_with([-bound - 0.01, -bound + 0.01, -0.01, 0.01, bound + 0.01])
    expected = [0.0, None, None, None, 1.0]
    for value, wanted in zip(gates.deterministic().tolist(), expected, strict=True):
        assert value == pytest.approx(wanted) if wanted is not None else 0 < value < 1
    assert gates.alive().tolist() == [False, True, True, True, True]  # an undecided head is not removed
    assert gates.alive("paper").tolist() == [False, False, False, True, True]
    assert gates.undecided().tolist() == [False, True, True, True, False]
    with pytest.raises(UserError, match='"paper" or "code"'):
        gates.alive("majority")


def test_initialisation_is_glorots_and_reproducible():
    gates = HardConcrete(8, generator(5))
    assert gates.log_alpha.abs().max() <= math.sqrt(3 / 8)
    assert torch.equal(gates.log_alpha, HardConcrete(8, generator(5)).log_alpha)
    assert gates.log_alpha.shape == (8,)
    with pytest.raises(UserError, match="at least 1"):
        HardConcrete(0)


def test_open_probability_stays_inside_and_pulls_gates_down():
    gates = gates_with([-50.0, 0.0, 50.0])
    probability = gates.open_probability()
    assert probability[0].item() == pytest.approx(1e-6)
    assert probability[2].item() == pytest.approx(1 - 1e-6)
    probability.sum().backward()
    assert gates.log_alpha.grad[1] > 0  # a penalty on it closes the gate
    gates.sample(generator()).sum().backward()
    assert torch.isfinite(gates.log_alpha.grad).all()


def by_enumeration(logits, k):
    """Expected inclusion at temperature 1 of the same recursion, written out with plain Python numbers."""
    r, p, total = [float(x) for x in logits], [0.0] * len(logits), [0.0] * len(logits)
    for _ in range(k):
        r = [a + math.log(1 - b) for a, b in zip(r, p, strict=True)]
        norm = sum(math.exp(a) for a in r)
        p = [math.exp(a) / norm for a in r]
        total = [a + b for a, b in zip(total, p, strict=True)]
    return total


def test_subset_gates_follow_the_recursion_and_sum_to_k():
    logits = torch.tensor([0.3, -1.0, 2.0, 0.1, 0.5], dtype=torch.float64, requires_grad=True)
    for k in range(5):
        found = subset_gates(logits, k, 1.0)
        torch.testing.assert_close(found.tolist(), by_enumeration(logits.tolist(), k))
        assert found.sum().item() == pytest.approx(k)
    for temperature in (1000.0, 1.0, 1e-3, 1e-8):
        gates = subset_gates(logits, 3, temperature, generator(1))
        assert gates.sum().item() == pytest.approx(3)
        assert torch.isfinite(torch.autograd.grad(gates.square().sum(), logits)[0]).all()


def test_cold_gates_are_the_mask():
    logits = torch.tensor([0.3, -1.0, 2.0, 0.1, 0.5])
    for k in range(6):
        torch.testing.assert_close(subset_gates(logits, k, 1e-8), subset_mask(logits, k))
        assert subset_mask(logits, k).sum() == k
    assert subset_mask(torch.zeros(4), 2).tolist() == [1, 1, 0, 0]  # ties keep k all the same


def test_noise_comes_from_the_generator_alone():
    logits = torch.tensor([0.3, -1.0, 2.0, 0.1])
    assert torch.equal(subset_gates(logits, 2, 1.0), subset_gates(logits, 2, 1.0))
    one, other = (subset_gates(logits, 2, 1.0, generator(seed)) for seed in (1, 2))
    assert torch.equal(one, subset_gates(logits, 2, 1.0, generator(1)))
    assert not torch.allclose(one, other)
    # The cold noisy choice of one head follows the softmax of the logits.
    rng = generator(7)
    counts = sum(subset_gates(logits, 1, 1e-6, rng).round() for _ in range(4000)) / 4000
    torch.testing.assert_close(counts, torch.softmax(logits, 0), atol=0.03, rtol=0)


def test_straight_through_is_the_mask_with_an_identity_gradient():
    logits = torch.tensor([0.3, -1.0, 2.0], requires_grad=True)
    gates = straight_through_gates(logits, 3)
    assert gates.tolist() == [1, 1, 1]
    (gates * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert logits.grad.tolist() == [1, 2, 3]


def test_cooling_is_geometric():
    assert cooling(0) == 1000
    assert cooling(25_000) == pytest.approx(1e-8)
    assert cooling(99_999) == pytest.approx(1e-8)
    assert cooling(10, 20) == pytest.approx(math.sqrt(1000 * 1e-8))


def test_k_and_temperature_are_checked():
    for k in (-1, 5):
        with pytest.raises(UserError, match="number of heads, 4"):
            subset_gates(torch.zeros(4), k, 1.0)
    with pytest.raises(UserError, match="positive"):
        subset_gates(torch.zeros(4), 2, 0.0)
