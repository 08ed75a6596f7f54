"""Pruned models beside models that had the same heads from the start."""

import pandas as pd

from .._figure import ReportFigure
from .._numbers import estimate_text
from .._shown_models import ShownModels
from ._beside import Way, WaysBeside, unit_of
from ._charts import METHOD
from ._rows import LEARNED, SCRATCH, PrunableHeads

_WAYS = (Way(key=SCRATCH, name="from scratch", mark="– –", control=True), Way(key=LEARNED, name="pruned"))


def scratch_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """One panel for each model and set of heads with points that were also trained from scratch."""
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
        tables=("pruning",),
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
