"""The reliability of a recording: residuals against the change of the loss, and its cost."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ._rules import RULES, Rule

if TYPE_CHECKING:
    from ._recorder import LossChangeRecorder


# Residuals between sums of allocations and the change of the loss, for the rule in use and for simpler ones.


_MAIN = len(RULES)  # row of the rule in use


class Residuals:
    """Sums over chords, float64 (rule, target)."""

    def __init__(self, targets: int) -> None:
        shape = (_MAIN + 1, targets)
        self._sums = {name: np.zeros(shape) for name in ("count", "absolute", "largest", "signed", "change", "moved")}

    def add(self, residuals: dict[Rule | None, np.ndarray], change_G: np.ndarray) -> None:
        """Count one chord: the residuals of each available rule (None: the rule in use) and the change."""
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


def free_residuals(
    change_G: np.ndarray, first_G: np.ndarray | None, middle_G: np.ndarray | None, last_G: np.ndarray | None
) -> dict[Rule | None, np.ndarray]:
    r"""Residuals of simple rules on a chord, from the slopes $g \cdot \Delta$ at its start, middle and end."""
    found: dict[Rule | None, np.ndarray] = {}
    if first_G is not None:
        found["first-order"] = change_G - first_G
    if middle_G is not None:
        found["midpoint"] = change_G - middle_G
    if first_G is not None and last_G is not None:
        found["trapezoid"] = change_G - (first_G + last_G) / 2
        if middle_G is not None:
            found["simpson"] = change_G - (first_G + 4 * middle_G + last_G) / 6
    return found


# The reliability of a recording, and its cost.


_UNITS = {
    "chords": "chords",
    "mean residual": "nats per item",
    "largest residual": "nats per item",
    "residual of the total": "share of the loss change",
    "residual of all changes": "share of the sum of |loss change|",
}


def reliability_rows(recorder: "LossChangeRecorder") -> list[dict[str, Any]]:
    """One row per statistic: residuals by rule, agreement of two halves of the examples, size, cost, unused ones."""
    rows = []
    for row, (index, term) in enumerate(recorder.targets.rows):
        one = recorder.targets.sets[index]
        target = {"set": one.name, "term": term}
        for rule, name in ((None, recorder.config.rule), *((rule, rule) for rule in RULES)):
            if rule == recorder.config.rule and recorder.config.splits == 1 and recorder.panels is None:
                continue  # duplicates of the same chords
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
