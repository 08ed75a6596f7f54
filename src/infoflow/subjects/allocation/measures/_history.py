"""A recording over time: its windows, when each part raised the loss, how reliable the sums are, and the cost."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int8, Int32
from torch import Tensor

from ._rules import RULES, Rule

if TYPE_CHECKING:
    from ._recorder import LossChangeRecorder

# A recording over time: sums of each window, and losses at its ends.


# G targets (a set and a term of the loss), C cells, P parts, W windows

PARAMETER_FIGURES = ("helped", "hurt", "zero", "alternated", "top_share")
"""Shares of the parameters in a chord; `top_share`: the share of the largest 1 % of |A| in the sum of |A|."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Chord:
    """Results for one chord, the straight line between two recorded sets of weights; all numbers are on the CPU."""

    start: int  # number of updates before the chord
    end: int
    sums_GPC: np.ndarray  # allocations of each part, which sum to the allocation on the whole set
    loss_before_G: np.ndarray
    loss_after_G: np.ndarray
    parameters: np.ndarray  # PARAMETER_FIGURES of the tracked target; NaN where not measured

    @property
    def sums_GC(self) -> np.ndarray:
        return self.sums_GPC.sum(axis=1)

    @property
    def residual_G(self) -> np.ndarray:
        """Loss change minus the sum of the allocation."""
        return self.loss_after_G - self.loss_before_G - self.sums_GPC.sum(axis=(1, 2))


class History:
    """Windows of equal numbers of chords, and totals of each part over the whole run."""

    def __init__(self, targets: int, parts: int, cells: int, chords_per_window: int) -> None:
        self._per_window = chords_per_window
        self.totals_GPC = np.zeros((targets, parts, cells))
        self._windows: dict[str, list[np.ndarray]] = {name: [] for name in _FIELDS}
        self._open = 0  # chords in the last window

    def add(self, chord: Chord) -> None:
        """Add a chord to the last window, or start a new one."""
        self.totals_GPC += chord.sums_GPC
        ends = np.array([chord.start, chord.end], dtype=float)
        losses = np.stack([chord.loss_before_G, chord.loss_after_G])
        residuals = np.abs(chord.residual_G)
        known = np.isfinite(chord.parameters)
        figures = np.stack([np.where(known, chord.parameters, 0.0), known.astype(float)])
        if self._open == 0:
            new = (ends, losses, chord.sums_GC, residuals, figures, np.array(1.0))
            for name, value in zip(_FIELDS, new, strict=True):
                self._windows[name].append(value)
        else:
            last = {name: values[-1] for name, values in self._windows.items()}
            last["ends"][1], last["losses"][1] = ends[1], losses[1]
            last["sums"] += chord.sums_GC
            last["residuals"] += residuals
            last["figures"] += figures
            last["chords"] += 1.0
        self._open = (self._open + 1) % self._per_window

    @property
    def completes_window(self) -> bool:
        """Whether the next chord is the last of its window."""
        return self._open == self._per_window - 1

    def __len__(self) -> int:
        return len(self._windows["ends"])

    @property
    def ends_W2(self) -> np.ndarray:
        return np.array(self._windows["ends"]).reshape(-1, 2).astype(np.int64)

    @property
    def losses_W2G(self) -> np.ndarray:
        return np.array(self._windows["losses"])

    @property
    def sums_WGC(self) -> np.ndarray:
        return np.array(self._windows["sums"])

    @property
    def mean_residuals_WG(self) -> np.ndarray:
        return np.array(self._windows["residuals"]) / np.array(self._windows["chords"])[:, None]

    @property
    def figures_WF(self) -> np.ndarray:
        """Means over the chords of each window, in the order of `PARAMETER_FIGURES`."""
        sums = np.array(self._windows["figures"])
        with np.errstate(invalid="ignore", divide="ignore"):
            return sums[:, 0] / np.where(sums[:, 1] == 0, np.nan, sums[:, 1])

    def state(self) -> dict[str, Tensor]:
        windows = {name: torch.from_numpy(np.array(values)) for name, values in self._windows.items() if values}
        return {**windows, "totals": torch.from_numpy(self.totals_GPC.copy()), "open": torch.tensor(self._open)}

    def load(self, state: dict[str, Tensor]) -> None:
        self.totals_GPC = state["totals"].numpy().copy()
        self._open = int(state["open"])
        for name in _FIELDS:
            self._windows[name] = [value.copy() for value in state[name].numpy()] if name in state else []
        # Made arrays again, so that sums can continue in place: an element of an array is a scalar.
        self._windows["chords"] = [np.array(value) for value in self._windows["chords"]]


_FIELDS = ("ends", "losses", "sums", "residuals", "figures", "chords")


# Counts of hurting: how often, when last and how much, for groups and for every single parameter.


# G targets, N groups of any level

NEVER = -1


class GroupCounts:
    """Numbers of chords in which the *sum* of a group raised, lowered or did not change the loss."""

    def __init__(self, targets: int, groups: int) -> None:
        shape = (targets, groups)
        self.hurt, self.helped = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        self.zero, self.last = np.zeros(shape, dtype=np.int64), np.full(shape, NEVER)
        self.largest, self.largest_update = np.full(shape, -np.inf), np.full(shape, NEVER)

    def add(self, sums_GN: np.ndarray, update: int) -> None:
        """Count one chord that ends after `update`."""
        hurts = sums_GN > 0
        self.hurt += hurts
        self.helped += sums_GN < 0
        self.zero += sums_GN == 0
        self.last[hurts] = update
        larger = sums_GN > self.largest
        self.largest[larger], self.largest_update[larger] = sums_GN[larger], update

    def state(self) -> dict[str, Tensor]:
        return {name: torch.from_numpy(getattr(self, name).copy()) for name in _COUNTS}

    def load(self, state: dict[str, Tensor]) -> None:
        for name in _COUNTS:
            setattr(self, name, state[name].numpy().copy())


_COUNTS = ("hurt", "helped", "zero", "last", "largest", "largest_update")


class ParameterCounts:
    """The counts of `GroupCounts` for every single parameter, and further statistics.

    The further statistics are the smallest allocation, two moments (sums over chords of the allocation and of its
    square), and how well two halves of the examples agree.

    Counters are int32: PyTorch's uint32 has no mixed addition.
    """

    def __init__(self, like: Float[Tensor, " parameter"], halves: bool) -> None:
        integer = torch.zeros_like(like, dtype=torch.int32)
        self.hurt, self.zero = integer, integer.clone()
        self.last, self.largest_update = torch.full_like(integer, NEVER), torch.full_like(integer, NEVER)
        self.largest = torch.full_like(like, -torch.inf)
        self.smallest = torch.full_like(like, torch.inf)
        self.total, self.squares = torch.zeros_like(like), torch.zeros_like(like)
        self.sign = torch.zeros_like(like, dtype=torch.int8)  # sign in the previous chord
        self.halves: tuple[Tensor, ...] = (torch.zeros_like(like), torch.zeros_like(like)) if halves else ()
        self.agreement = torch.zeros(2, dtype=torch.float64)  # sum over chords of the share of equal signs; chords

    def add(self, allocation: Float[Tensor, " parameter"], update: int, tail: bool) -> np.ndarray:
        """Count one chord.

        Returns the chord's `PARAMETER_FIGURES` (`top_share`, which needs a sort, only with `tail`).
        """
        hurts, sign = allocation > 0, _signs(allocation)
        both = self.sign * sign
        self.sign = sign
        self.hurt += hurts
        self.zero += 1 - sign.abs()
        _mark(self.last, hurts, update)
        _mark(self.largest_update, allocation > self.largest, update)
        torch.maximum(self.largest, allocation, out=self.largest)
        torch.minimum(self.smallest, allocation, out=self.smallest)
        self.total += allocation
        self.squares.addcmul_(allocation, allocation)
        size = allocation.numel()
        hurt, zero = int(torch.count_nonzero(hurts)) / size, (size - int(torch.count_nonzero(sign))) / size
        moving, equal = _equal_signs(both)
        alternated = (moving - equal) / moving if moving else np.nan
        return np.array([1 - hurt - zero, hurt, zero, alternated, _top_share(allocation) if tail else np.nan])

    def compare(self, first: Float[Tensor, " parameter"], second: Float[Tensor, " parameter"]) -> None:
        """Count one chord's allocations on two halves of the examples, each half with its own mean loss."""
        self.halves[0].add_(first)
        self.halves[1].add_(second)
        moving, equal = _equal_signs(_signs(first * second))
        if moving:
            self.agreement += torch.tensor([equal / moving, 1.0], dtype=torch.float64)

    @property
    def sign_agreement(self) -> float:
        """Mean share of parameters whose allocations on the two halves have equal signs, if both are nonzero."""
        return float(self.agreement[0] / self.agreement[1]) if self.agreement[1] else np.nan

    def half_correlation(self) -> float:
        """Correlation of the parameters' totals on the two halves."""
        if not self.halves:
            return np.nan
        first, second = (half.double() - half.double().mean() for half in self.halves)
        return float((first * second).sum() / (first.norm() * second.norm()))

    def state(self) -> dict[str, Tensor]:
        halves = {f"half {index}": half for index, half in enumerate(self.halves)}
        return {name: getattr(self, name) for name in _PARAMETER_FIELDS} | halves

    def load(self, state: dict[str, Tensor]) -> None:
        for name in _PARAMETER_FIELDS:
            setattr(self, name, state[name].to(getattr(self, name).device, copy=True))
        self.halves = tuple(state[f"half {index}"].to(half.device, copy=True) for index, half in enumerate(self.halves))


_EXTREMES = ("largest", "largest_update", "smallest")
_PARAMETER_FIELDS = ("hurt", "zero", "last", *_EXTREMES, "total", "squares", "sign", "agreement")


# With nearly random signs, selecting by a mask (masked_fill_, where) or comparing narrow integers costs 5 to 15 times
# as much as arithmetic on a CPU: 1.6 ms against 0.1 for 440,000 parameters, several times per chord.


def _signs(values: Float[Tensor, " parameter"]) -> Int8[Tensor, " parameter"]:
    return torch.sign(values).to(torch.int8)


def _mark(updates: Int32[Tensor, " parameter"], where: Bool[Tensor, " parameter"], update: int) -> None:
    """Set the entries of `where` to `update`, which is later than all existing entries."""
    torch.maximum(updates, where.to(torch.int32).mul_(update - NEVER).add_(NEVER), out=updates)


def _equal_signs(products: Int8[Tensor, " parameter"]) -> tuple[int, int]:
    """Numbers of products of two signs that are not 0, and that are 1."""
    moving = int(torch.count_nonzero(products))
    return moving, (moving + int(products.sum())) // 2


def _top_share(allocation: Tensor) -> float:
    """The share of the largest 1 % in the sum of |A|; 3.6 % for a normal distribution."""
    sizes = allocation.abs()
    total = float(sizes.sum(dtype=torch.float64))
    largest = torch.topk(sizes, max(1, sizes.numel() // 100), sorted=False).values
    return float(largest.sum(dtype=torch.float64)) / total if total else np.nan


# Residuals between sums of allocations and the change of the loss, for the rule in use and for simpler ones.


_MAIN = len(RULES)  # row of the rule in use


class Residuals:
    """Sums over chords, float64 (rule, target)."""

    def __init__(self, targets: int) -> None:
        shape = (_MAIN + 1, targets)
        self._sums = {name: np.zeros(shape) for name in ("count", "absolute", "largest", "signed", "change", "moved")}

    def add(self, residuals: dict[Rule | None, np.ndarray], change_G: np.ndarray) -> None:
        """Count one chord: the residuals of each available rule (None: the rule in use) and the loss change."""
        for rule, residual_G in residuals.items():
            row = _MAIN if rule is None else RULES.index(rule)
            sums = self._sums
            sums["count"][row] += 1
            sums["absolute"][row] += np.abs(residual_G)
            sums["largest"][row] = np.maximum(sums["largest"][row], np.abs(residual_G))
            sums["signed"][row] += residual_G
            sums["change"][row] += change_G
            sums["moved"][row] += np.abs(change_G)

    def summary(self, rule: Rule | None, target: int) -> dict[str, float]:
        """Statistics of one rule (None: the one in use); empty if it was never available."""
        row = _MAIN if rule is None else RULES.index(rule)
        count, absolute, largest, signed, change, moved = (sums[row, target] for sums in self._sums.values())
        if not count:
            return {}
        with np.errstate(divide="ignore", invalid="ignore"):
            return {
                "chords": float(count),
                "mean residual": float(absolute / count),
                "largest residual": float(largest),
                "residual of the total": float(np.abs(signed / change)),
                "residual of all changes": float(np.abs(signed) / moved),
            }

    def state(self) -> dict[str, Tensor]:
        return {name: torch.from_numpy(values.copy()) for name, values in self._sums.items()}

    def load(self, state: dict[str, Tensor]) -> None:
        self._sums = {name: state[name].numpy().copy() for name in self._sums}


# The reliability of a recording, and its cost.


_UNITS = {
    "chords": "chords",
    "mean residual": "nats per item",
    "largest residual": "nats per item",
    "residual of the total": "share of the loss change",
    "residual of all changes": "share of the sum of |loss change|",
}


def reliability_rows(recorder: "LossChangeRecorder") -> list[dict[str, Any]]:
    """One row per statistic: residuals by rule, agreement of two halves of examples, size, cost, unused parameters."""
    rows = []
    for row, (index, term) in enumerate(recorder.targets.rows):
        one = recorder.targets.sets[index]
        target = {"set": one.name, "term": term}
        for rule, name in ((None, recorder.config.rule), *((rule, rule) for rule in RULES)):
            if rule == recorder.config.rule and recorder.config.splits == 1 and recorder.panels is None:
                continue  # would repeat the rule in use on the same chords
            for statistic, value in recorder.residuals.summary(rule, row).items():
                rows.append({"statistic": statistic, "rule": name, "value": value, "unit": _UNITS[statistic], **target})
        plain = [
            *_halves(recorder, row),
            ("examples", one.sentences, "sentences"),
            ("tokens", one.tokens, "source tokens"),
            ("items", one.totals[term], "supervised items"),
            ("parts", recorder.targets.parts, "parts"),
        ]
        if row == 0:
            plain += _of_parameters(recorder)
        rows += [{"statistic": s, "rule": "", "value": float(v), "unit": unit, **target} for s, v, unit in plain]
    return rows


def _halves(recorder: "LossChangeRecorder", row: int) -> list[tuple[str, float, str]]:
    """Correlation of the groups' totals between even and odd parts, with and without the embeddings."""
    if recorder.targets.parts < 2:
        return []
    groups = recorder.cells.groups
    place = recorder.cells.merged(groups)
    totals_PC = recorder.history.totals_GPC[row]
    halves = [np.bincount(place, totals_PC[side::2].sum(axis=0), len(groups)) for side in (0, 1)]
    others = [number for number, group in enumerate(groups) if group.component != "embeddings"]
    return [
        ("half correlation of groups", _correlation(*halves), "correlation"),
        ("half correlation of groups without embeddings", _correlation(*(h[others] for h in halves)), "correlation"),
    ]


def _of_parameters(recorder: "LossChangeRecorder") -> list[tuple[str, float, str]]:
    unused = set(range(len(recorder.flat.names))) - recorder.targets.used
    figures = [
        ("seconds", recorder.seconds, "s"),
        ("updates per chord", recorder.config.every, "updates"),
        *_panels(recorder),
        ("unused parameters", sum(recorder.flat.parameters[number].numel() for number in unused), "parameters"),
    ]
    counts = recorder.parameter_counts
    if counts is None or recorder.targets.parts < 2:
        return figures
    return [
        *figures,
        ("half correlation of parameters", counts.half_correlation(), "correlation"),
        ("sign agreement of parameters", counts.sign_agreement, "share of parameters"),
    ]


def _panels(recorder: "LossChangeRecorder") -> list[tuple[str, float, str]]:
    if recorder.panels is None:
        return [("panels", recorder.config.splits, "panels")]
    return [("panels", recorder.panels.mean, "panels"), ("largest number of panels", recorder.panels.largest, "panels")]


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    if len(first) == 0:  # heads of a model without attention
        return float("nan")
    first, second = first - first.mean(), second - second.mean()
    scale = np.linalg.norm(first) * np.linalg.norm(second)
    return float(first @ second / scale) if scale else np.nan
