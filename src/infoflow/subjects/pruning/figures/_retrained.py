"""Pruned models against models trained from scratch with the same heads, and against models trained further."""

import pandas as pd

from infoflow.report._figure import ReportFigure
from infoflow.report._numbers import estimate_text
from infoflow.report._samples import Estimate
from infoflow.report._shown_models import ShownModels
from infoflow.report.forms._chart import CONTROL
from infoflow.report.forms._marks import Constant

from ..measures import PRUNING
from ._beside import Level, Way, WaysBeside, unit_of
from ._rows import LEARNED, METHOD, RECOVERED, RECOVERED_ALL, RECOVERED_RANDOM, SCRATCH, UNPRUNED, PrunableHeads

_WAYS = (Way(key=SCRATCH, name="from scratch", mark="– –", control=True), Way(key=LEARNED, name="pruned"))


def scratch_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """One panel per model and set of heads with sweep steps that were also trained from scratch."""
    beside = WaysBeside.of(frame, models, _WAYS)
    if beside is None:
        return None
    return ReportFigure(
        id="pruning-scratch",
        question="Could a model with so few heads have been trained from the start?",
        answer=[_sentence(beside, pool) for pool in beside.pools],
        words=beside.words("the pruned model's advantage"),
        panels=[beside.panel(pool) for pool in beside.pools],
        caption=beside.caption,
        how_to_read=[
            "In colour: the model that learned gates pruned. Grey and dashed, the control: a model that had exactly "
            "these heads from its first update on, with as many updates as the model had before pruning. Dotted: the "
            "model before any head went.",
            "If the coloured line or point lies higher in BLEU (lower in loss), all heads were of use for learning, "
            "though few are for the result. It would be surprising if training from scratch were better.",
        ],
        method=METHOD,
        data=beside.curves,
        tables=(PRUNING.name,),
        findings=("heads:V2",),
    )


def _sentence(beside: WaysBeside, pool: PrunableHeads) -> str:
    """Which of the two is better, and by how much."""
    estimate, num = beside.advantage(pool), beside.num_points(pool)
    better = "better" if estimate.value > 0 else "worse"
    sure = "" if estimate.sign or not estimate.has_interval else ", which may be chance"
    shown = estimate if estimate.value > 0 else estimate.negated()
    points = f", the mean over {num} points" if num > 1 else ""
    by = estimate_text(shown, unit_of(beside.metric[pool]))
    return f"{pool.subject}: the pruned model is {better} by {by}{points}{sure}."


_AS_PRUNED = {"strokeDash": Constant([2, 3]), "shape": Constant("square")}
_RECOVERED_WAYS = (
    Way(key=RECOVERED_RANDOM, name="random heads, trained on", mark="– –", control=True),
    Way(key=LEARNED, name="as pruned", mark="■", look=_AS_PRUNED),
    Way(key=RECOVERED, name="trained on"),
)
_ALL = {**CONTROL, "strokeDash": [8, 3]}
_ALL_NAME = ("— —", "all heads, trained on", "var(--soft)")


def recovered_figure(frame: pd.DataFrame, whole: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """One panel per model and set of heads with sweep steps that were trained further.

    Args:
        frame: Curves with `left` and `size`.
        whole: The rows of models with all heads: before pruning, and trained further.
    """
    beside = WaysBeside.of(frame, models, _RECOVERED_WAYS)
    if beside is None:
        return None
    return ReportFigure(
        id="pruning-recovered",
        question="Do pruned models come back when they are trained on?",
        answer=[_recovered_sentence(beside, pool, whole) for pool in beside.pools],
        words=beside.words("trained on, the advantage of the heads that gates left over random ones"),
        panels=[beside.panel(pool, _levels(beside, pool, whole)) for pool in beside.pools],
        caption=beside.caption,
        how_to_read=[
            "Squares: the model as gates pruned it. Dots: the same, trained on without gates, at a rate that rises "
            "and falls again. Grey and short dashes, the control: as many heads drawn at random from the model before, "
            "trained on at once for as many updates as gates and what follows take together. Dotted: the model before "
            "any head went; long dashes: all of its heads, trained on as long.",
            "From squares to dots: what the rest of the model had not followed yet. From grey to dots: what it is "
            "worth which heads are left; it would be surprising if random ones were better. Only beside the long "
            "dashes does it show what the missing heads cost: more training helps all of them.",
        ],
        method=METHOD,
        data=beside.curves,
        tables=(PRUNING.name,),
        findings=("heads:H2",),
    )


def _levels(beside: WaysBeside, pool: PrunableHeads, whole: pd.DataFrame) -> list[Level]:
    values = _whole(beside, pool, whole, RECOVERED_ALL)["value"]
    return [(float(values.mean()), _ALL, _ALL_NAME)] if len(values) else []


def _whole(beside: WaysBeside, pool: PrunableHeads, whole: pd.DataFrame, way: str) -> pd.DataFrame:
    rows = whole.loc[(whole["method"] == way) & (whole["metric"] == beside.metric[pool])]
    return rows.loc[rows["series"] == pool.series.key]


def _recovered_sentence(beside: WaysBeside, pool: PrunableHeads, whole: pd.DataFrame) -> str:
    """The model's distance from random heads, from its state before, and from all heads."""
    unit, num, pairs = unit_of(beside.metric[pool]), beside.num_points(pool), pool.of(beside.pairs)
    left = sorted(set(pairs.groupby("point")["left"].mean().round().astype(int)))
    few = f"{left[0]}" if len(left) == 1 else f"{left[0]} to {left[-1]}"
    parts = [_told(beside.advantage(pool), unit, "as many random heads, trained on as long")]
    names = {UNPRUNED: "the model before any head went", RECOVERED_ALL: "all heads, trained on as long"}
    for way, name in names.items():
        rows = _whole(beside, pool, whole, way)
        if len(rows):
            parts.append(_told(beside.advantage_over(pool, rows), unit, name))
    points = f" (means over {num} points)" if num > 1 else ""
    *most, last = parts
    return (
        f"{pool.subject}: with {few} of {int(pairs['size'].iloc[0])} left and trained on{points}, the model is "
        f"{', '.join(most)}{' and ' if most else ''}{last}."
    )


def _told(estimate: Estimate, unit: str, than: str) -> str:
    better = "better" if estimate.value > 0 else "worse"
    sure = "" if estimate.sign or not estimate.has_interval else " (which may be chance)"
    shown = estimate if estimate.value > 0 else estimate.negated()
    return f"{estimate_text(shown, unit)} {better} than {than}{sure}"
