"""Claim about pruned models that are trained on: heads:H2."""

# R bootstrap replicates, the estimate in their row 0

from collections.abc import Sequence

import numpy as np

from infoflow.findings._finding import Condition, Control, Curves, claim, exceeds
from infoflow.findings._model_group import TRANSLATION, Absent
from infoflow.findings._sources import OURS
from infoflow.findings._table import Reading, SeedRows

from ._pruned_models import ENCODER, paired_difference, pruning_quality, side_by_side

RECOVERED, RECOVERED_RANDOM, RECOVERED_ALL = "recovered", "recovered-random", "recovered-all"
"""Trained further: the heads that gates left, as many random heads, and all heads."""

UNPRUNED = "unpruned"
THAN = {UNPRUNED: "the converged model", RECOVERED_ALL: "all heads", RECOVERED_RANDOM: "as many random heads"}


def recovered_gaps(way: str = RECOVERED, than: Sequence[str] = (UNPRUNED, RECOVERED_ALL, RECOVERED_RANDOM)) -> Reading:
    """Quality of pruned encoders after further training, minus that of other models: one number for each of `than`.

    Numbers are in BLEU, then in loss; positive if the pruned models are better, NaN for an unscored metric. They use
    the step nearest to `FEW` among those with fewer than half of the encoder's heads left, and are paired by sentences.
    """
    return pruning_quality().where(metric=..., scope=...).reduce(_gaps, way=way, than=tuple(than))


FEW = 10 / 48
"""Share of the encoder's heads that the paper left at a cost of .15 BLEU."""
_METRICS = ("bleu", "loss")
_NONE_LEFT_FEW = "no point at which fewer than half of the encoder's heads were left was trained on"


def _gaps(rows: SeedRows, way: str, than: tuple[str, ...]) -> np.ndarray:
    point = _point(rows)
    gaps: list[np.ndarray | None] = []
    for metric in _METRICS:
        scored = rows.at(rows.frame["metric"] == metric)
        own = _score(scored, way, point)
        sign = 1 if metric == "bleu" else -1
        for other in (_score(scored, one, point) for one in than):
            gaps.append(None if own is None or other is None else sign * paired_difference(own, other))
    return side_by_side(gaps)


def _point(rows: SeedRows) -> int:
    frame = rows.frame[(rows.frame["method"] == RECOVERED) & (rows.frame["scope"] == ENCODER)]
    if frame.empty:
        raise Absent(
            "no pruned encoder was trained on: set recover in the plan's [pruning], and encoder-self among its scopes"
        )
    heads = frame["total"] - frame["kept_decoder_self"] - frame["kept_decoder_cross"]
    left = (1 - (frame["total"] - frame["kept"]) / heads).groupby(frame["point"]).first()
    few = left[left < 0.5]
    if few.empty:
        raise Absent(f"{_NONE_LEFT_FEW}: sweep larger penalties, or name more recover_points")
    return int((few - FEW).abs().idxmin())


def _score(rows: SeedRows, way: str, point: int) -> np.ndarray | None:
    """(1 + R,): the score of that step, or of the only one if all heads are kept."""
    found = rows.frame["method"] == way
    if way not in (UNPRUNED, RECOVERED_ALL):
        found &= (rows.frame["scope"] == ENCODER) & (rows.frame["point"] == point)
    own = rows.at(found)
    return None if own.frame.empty else own.numbers[:, 0]


_H2_READS: dict[str, Reading] = {"gaps": recovered_gaps(than=tuple(THAN))}

LOST = (0.3, 0.03)

_UNITS = ("BLEU", "nats per token")


@claim(
    "heads:H2",
    "A translation encoder that is trained further with the few heads that gates left is as good as with all "
    "heads, and better than with as many random ones.",
    source=OURS,
    published=f"none for models trained further, so the threshold, {LOST[0]} BLEU, is ours: twice the cost of "
    "the 10 of "
    "48 heads that gates left (heads:V1)",
    statistic="at the step of a gate sweep that left closest to 10 of 48 encoder heads (fewer than half), trained "
    "further without gates: BLEU (without it: the loss) minus that of the converged model is above "
    f"−{LOST[0]} ({LOST[1]} nats per token), so is BLEU minus that with all heads, and BLEU minus that with "
    "as many random heads is above 0; the last two were trained further for as many updates all, from the "
    "converged model",
    reads=_H2_READS,
    controls=(
        Control(
            name="as many random heads, trained on for as many updates",
            reads={"gaps": recovered_gaps(RECOVERED_RANDOM, than=(UNPRUNED, RECOVERED_ALL, RECOVERED))},
        ),
    ),
    learned=(TRANSLATION,),
)
def h2(curves: Curves) -> list[Condition]:
    """A translation encoder with few heads left, trained further."""
    gaps = np.split(curves["gaps"], 2, axis=1)
    metric = int(np.isnan(gaps[0][0]).all())  # the loss if BLEU was not scored
    return [
        exceeds(
            f"quality beyond that of {name}{'' if way == UNPRUNED else ', trained on for as many updates'}",
            gaps[metric][:, at : at + 1],
            0.0 if way == RECOVERED_RANDOM else -LOST[metric],
            _UNITS[metric],
        )
        for at, (way, name) in enumerate(THAN.items())
    ]
