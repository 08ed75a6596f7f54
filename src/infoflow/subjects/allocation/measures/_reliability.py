"""The reliability of a recording, and its cost."""

from typing import TYPE_CHECKING, Any

import numpy as np

from ._rules import RULES

if TYPE_CHECKING:
    from ._recorder import LossChangeRecorder

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
