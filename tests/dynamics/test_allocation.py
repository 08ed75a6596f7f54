"""Allocation along a chord against explicit sums, exactness by rule, and what the user is told."""

import pytest
import torch
from torch import Tensor

from infoflow.dynamics import RULES, loss_change_allocation, quadrature
from infoflow.foundation import UserError

Weights = dict[str, Tensor]


def ends(seed: int = 0) -> tuple[Weights, Weights]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"matrix": (3, 4), "bias": (3,), "scale": ()}
    return tuple(
        {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
        for _ in range(2)
    )  # type: ignore[return-value]


def polynomial(degree: int):
    """A loss whose gradient along any line is a polynomial of that degree less one."""
    inputs = torch.randn(5, 4, generator=torch.Generator().manual_seed(9), dtype=torch.float64)

    def loss(weights: Weights) -> Tensor:
        return ((inputs @ weights["matrix"].T + weights["bias"]).sum() * 0.1 + weights["scale"]) ** degree

    return loss


def by_single_parameters(loss, start: Weights, end: Weights, rule: str, splits: int) -> Weights:
    """The definition: each node and each parameter by itself, the derivative by central differences."""
    nodes = {
        "first-order": [(0, 1)],
        "trapezoid": [(0, 0.5), (1, 0.5)],
        "midpoint": [(0.5, 1)],
        "simpson": [(0, 1 / 6), (0.5, 4 / 6), (1, 1 / 6)],
        "gauss-legendre": [(0.5 - 3**0.5 / 6, 0.5), (0.5 + 3**0.5 / 6, 0.5)],
    }[rule]
    result = {name: torch.zeros_like(value) for name, value in start.items()}
    for name in start:
        for place in range(start[name].numel()):
            for panel in range(splits):
                for node, weight in nodes:
                    at = {n: start[n] + (panel + node) / splits * (end[n] - start[n]) for n in start}
                    values = []
                    for shift in (1e-5, -1e-5):
                        moved = {n: value.clone() for n, value in at.items()}
                        moved[name].view(-1)[place] += shift
                        values.append(float(loss(moved)))
                    slope = (values[0] - values[1]) / 2e-5
                    step = float((end[name] - start[name]).view(-1)[place])
                    result[name].view(-1)[place] += step * slope * weight / splits
    return result


def total(allocation: Weights) -> float:
    return float(sum(value.sum() for value in allocation.values()))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("splits", [1, 3])
def test_every_rule_is_its_definition(rule, splits: int) -> None:
    loss, (start, end) = polynomial(3), ends()
    fast = loss_change_allocation(loss, start, end, rule=rule, splits=splits)
    slow = by_single_parameters(loss, start, end, rule, splits)
    for name in start:
        torch.testing.assert_close(fast[name], slow[name], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("rule", "exact", "inexact"),
    [("first-order", 1, 2), ("trapezoid", 2, 3), ("midpoint", 2, 3), ("simpson", 4, 5), ("gauss-legendre", 4, 5)],
)
def test_the_sum_is_the_loss_change_up_to_the_rules_degree(rule, exact: int, inexact: int) -> None:
    start, end = ends()
    for degree, equal in ((exact, True), (inexact, False)):
        loss = polynomial(degree)
        change = float(loss(end) - loss(start))
        found = total(loss_change_allocation(loss, start, end, rule=rule))
        assert (abs(found - change) < 1e-12 * max(1, abs(change))) == equal


@pytest.mark.parametrize("rule", ["trapezoid", "midpoint", "simpson", "gauss-legendre"])
def test_the_way_back_gives_the_opposite(rule) -> None:
    start, end = ends()
    there = loss_change_allocation(polynomial(3), start, end, rule=rule, splits=2)
    back = loss_change_allocation(polynomial(3), end, start, rule=rule, splits=2)
    for name in start:
        torch.testing.assert_close(there[name], -back[name])


def test_what_does_not_move_or_matter_gets_exactly_zero() -> None:
    start, end = ends()
    end["bias"] = start["bias"].clone()
    start["unused"], end["unused"] = torch.zeros(2), torch.ones(2)
    allocation = loss_change_allocation(polynomial(3), start, end)
    assert (allocation["bias"] == 0).all()
    assert (allocation["unused"] == 0).all()
    assert (allocation["matrix"] != 0).any()
    nothing = loss_change_allocation(lambda weights: torch.tensor(1.0), start, end)
    assert all((value == 0).all() for value in nothing.values())


def test_a_tied_weight_is_split_between_its_uses() -> None:
    table, moved = ends()[0]["matrix"], ends(1)[0]["matrix"]

    def loss(weights: Weights) -> Tensor:
        return (torch.tanh(weights["input"]) * weights["output"]).sum()

    whole = loss_change_allocation(
        lambda w: loss({"input": w["tied"], "output": w["tied"]}), {"tied": table}, {"tied": moved}
    )
    split = loss_change_allocation(loss, {"input": table, "output": table}, {"input": moved, "output": moved})
    torch.testing.assert_close(split["input"] + split["output"], whole["tied"])


def test_neither_start_nor_end_changes_and_arrays_are_taken() -> None:
    start, end = ends()
    before = {name: value.clone() for name, value in start.items()}
    first = loss_change_allocation(polynomial(3), start, end)
    second = loss_change_allocation(
        polynomial(3), {n: v.numpy() for n, v in start.items()}, {n: v.numpy() for n, v in end.items()}
    )
    assert all(torch.equal(start[name], before[name]) for name in start)
    assert all(torch.equal(first[name], second[name]) for name in start)
    assert not any(value.requires_grad for value in first.values())


def test_panels_share_their_ends() -> None:
    calls = []

    def counted(weights: Weights) -> Tensor:
        calls.append(None)
        return polynomial(3)(weights)

    loss_change_allocation(counted, *ends(), rule="simpson", splits=4)
    assert len(calls) == 9
    assert sum(quadrature("simpson", 4).weights) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda start, end: end.pop("bias"), "same parameters. Only one of them has bias"),
        (lambda start, end: end.update(bias=torch.zeros(2)), r"same shapes. bias has \(3,\) and \(2,\)"),
        (lambda start, end: end.update(bias=torch.zeros(3, dtype=torch.bfloat16)), "bias is bfloat16"),
        (lambda start, end: (start.clear(), end.clear()), "at least one parameter"),
    ],
)
def test_what_does_not_fit_is_named(change, message: str) -> None:
    start, end = ends()
    change(start, end)
    with pytest.raises(UserError, match=message):
        loss_change_allocation(polynomial(2), start, end)
