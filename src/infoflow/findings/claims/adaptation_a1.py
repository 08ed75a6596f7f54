"""adaptation:A-1. Where tuning changes a model."""

from .._adaptation import SHUFFLED, change
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import MASKED
from .._sources import TUNING_INSIDE
from .._table import Reading, baselines, untrained

READS: dict[str, Reading] = {"change": change(MASKED)}


def test(curves: Curves) -> list[Condition]:
    distance = curves["change"]
    half = distance.shape[1] // 2
    lower, upper = (part.mean(axis=1, keepdims=True) for part in (distance[:, :half], distance[:, -half:]))
    return [
        exceeds("distance of upper layers before and after tuning, less that of lower ones", upper - lower, 0.0, "")
    ]


FINDING = Finding(
    id="adaptation:A-1",
    claim="Fine-tuning changes the upper layers most.",
    source=TUNING_INSIDE,
    published="fine-tuning primarily affects the top layers, with noteworthy variation across tasks (no number)",
    statistic="1 − PWCCA of a layer's space before and after tuning in full, mean over tasks: the upper half of the "
    "layers above the lower half",
    reads=READS,
    test=test,
    controls=(
        Control(name="untrained model, tuned", reads=untrained(READS)),
        Control(name="shuffled labels", reads={"change": change(MASKED, SHUFFLED)}, decisive=False),
        Control(name="two seeds of tuning in place of before and after", reads=baselines(READS), decisive=False),
    ),
    learned=(MASKED,),
    minimum_seeds=1,
)
