"""time:T18. Lower and upper layers of two seeds, at every checkpoint."""

from .._condition import SHARE, Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import NAMES, OBJECTIVES
from .._over_time import lower_more_alike
from .._sources import SIMILARITY
from .._table import Reading


def reads(*, at_start: bool = False) -> dict[str, Reading]:
    return {NAMES[one]: lower_more_alike(one, at_start=at_start) for one in OBJECTIVES}


def test(curves: Curves) -> list[Condition]:
    name = "share of the checkpoints after the warm-up at which state 1 is more alike between seeds than the last, {}"
    return [
        exceeds(name.format(model), values[:, :1], 0.9, "share of checkpoints", bounds=SHARE, step=1 / values[0, 1])
        for model, values in curves.items()
    ]


FINDING = Finding(
    id="time:T18",
    claim="After the warm-up, lower layers are always more alike between seeds than upper ones.",
    source=SIMILARITY,
    published="at the end of training, early layers are more similar between seeds than late ones; over time: ours",
    statistic="debiased CKA of state 1 with another seed's final state 1 above that of the last states, at .9 of the "
    "checkpoints after a tenth of the updates, in every objective",
    reads=reads(),
    test=test,
    controls=(Control(name="before training", reads=reads(at_start=True)),),
    learned=OBJECTIVES,
)
