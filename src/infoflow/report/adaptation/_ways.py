"""Frozen features beside tuned weights, general beside in-domain pretraining: the table that SciBERT's paper has."""

from typing import Any

import pandas as pd

from .._figure import Panel, ReportFigure
from .._numbers import estimate_text, listed, number
from .._samples import Samples
from .._series import Series
from .._shown_models import ShownModels
from ..forms._chart import color_of, tips
from ..forms._dots import interval_dots
from ._methods import SCORES
from ._rows import AS_IS, FROZEN, FULL, METHODS, STRATEGIES, averaged, bands, estimated, most_examples, of

_BY = ["strategy", "method"]
_MOST = 8  # models with a panel


def ways_figure(scores: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """A panel for each line that was tuned in several ways; None where none was."""
    own = most_examples(scores[(scores["control"] == "") & scores["trained"]])
    own = _same_tasks(own)
    counts = own.groupby("series")[_BY].apply(lambda rows: len(rows.drop_duplicates())) if len(own) else pd.Series()
    own = own[own["series"].isin(counts[counts > 1].index)] if len(counts) else own
    if own.empty:
        return None
    means = averaged(own, _BY)
    data = estimated(means, _BY)
    series = models.present(data)[:_MOST]
    return ReportFigure(
        id="tuned-ways",
        question="Frozen or tuned, general or in the domain?",
        answer=[text for one in series for text in _sentences(of(means, series=one.key), one.label)],
        panels=[Panel(spec=_chart(of(data, series=one.key), models), title=one.label) for one in series],
        caption=f"{bands(data)} Each model's mean over the tasks that it was tuned for in all of these ways, most "
        f"labelled examples.{_further(models.present(data))}",
        how_to_read=[
            "A row is a way to a model of the task: which text it was pretrained on, and what of it was trained on the "
            "labels. Across: mean over tasks of their main metrics on test examples. The dashed tick is the best guess "
            "without a model.",
            "Frozen features show what pretraining has put there already; what all weights add is what tuning moved. "
            "It would be surprising if frozen features won: they are a special case.",
        ],
        method=SCORES,
        data=data,
        tables=("tuned_scores",),
        findings=tuple(f"adaptation:A-{number}" for number in (2, 3, 4)),
        payload={"layout": "wide", "apart": True},
    )


def _further(series: list[Series]) -> str:
    """What the caption says of models without a panel."""
    names = [one.label for one in series[_MOST:]]
    return f" In the data, too: {listed(names)}." if names else ""


def _same_tasks(own: pd.DataFrame) -> pd.DataFrame:
    """Of each line the tasks that it was tuned for in every way that it was tuned at all."""
    parts = []
    for _, rows in own.groupby("series", sort=False):
        ways = [set(part["task"]) for _, part in rows.groupby(_BY, sort=False)]
        parts.append(rows[rows["task"].isin(set.intersection(*ways))])
    return pd.concat(parts) if parts else own


def way_label(strategy: str, method: str) -> str:
    return f"{STRATEGIES.get(strategy, strategy)}: {METHODS.get(method, method)}"


def _chart(rows: pd.DataFrame, models: ShownModels) -> dict[str, Any]:
    orders = (list(STRATEGIES), list(METHODS)[::-1])
    places = [
        tuple(order.index(name) if name in order else len(order) for name, order in zip(pair, orders, strict=True))
        for pair in rows[_BY].astype(str).itertuples(index=False, name=None)
    ]
    ordered = rows.assign(place=places).sort_values("place")
    labels = [way_label(*pair) for pair in ordered[_BY].astype(str).itertuples(index=False, name=None)]
    return interval_dots(
        ordered.drop(columns="place").assign(label=labels, short=[number(value, 2) for value in ordered["value"]]),
        {"color": color_of(models.present(rows))},
        title="score, mean over tasks",
        tooltip=tips("label:N|way", "shown:N|score"),
        step=30,
    )


def _sentences(rows: pd.DataFrame, name: str) -> list[str]:
    found = {
        (strategy, method): Samples.of(own)
        for (strategy, method), own in rows.groupby(_BY, sort=False)  # type: ignore[misc]
    }
    told, gains = [], []
    for strategy in dict.fromkeys(pair[0] for pair in found):
        both = [found.get((strategy, method)) for method in (FULL, FROZEN)]
        if both[0] and both[1]:
            domain = f" ({STRATEGIES.get(strategy, strategy)})" if strategy != AS_IS else ""
            gains.append(f"{estimate_text((both[0] - both[1]).estimate())}{domain}")
    if gains:
        told.append(f"tuning all weights gains over frozen features {listed(gains)}")
    general = found.get((AS_IS, FULL))
    for strategy in [one for one in STRATEGIES if one != AS_IS]:
        if general and (domain := found.get((strategy, FULL))):
            gap = estimate_text((domain - general).estimate())
            told.append(f"all weights tuned, “{STRATEGIES[strategy]}” differs from “{STRATEGIES[AS_IS]}” by {gap}")
    for (strategy, method), own in found.items():
        if general and strategy == AS_IS and method not in (FULL, FROZEN):
            gap = estimate_text((own - general).estimate())
            told.append(f"“{METHODS.get(method, method)}” differs from “{METHODS[FULL]}” by {gap}")
    return [f"In {name}, {'; '.join(told)}."] if told else []
