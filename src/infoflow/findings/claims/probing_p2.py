"""probing:P-2. The gain of training by the size of the probe's own training data."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding, Given
from .._model_group import MASKED
from .._probing import TOKEN_TASKS, WHOLE, at_best
from .._sources import LESSONS
from .._table import Reading, untrained

SMALL = 0.01


def _reads(labels: str) -> dict[str, Reading]:
    found = {}
    for name, share in (("few", SMALL), ("all", WHOLE)):
        reading = at_best(MASKED, TOKEN_TASKS, share, labels=labels)
        found |= {f"trained, {name}": reading, **untrained({f"untrained, {name}": reading})}
    return found


READS: dict[str, Reading] = _reads("task")


def test(curves: Curves) -> list[Condition]:
    few, whole = (curves[f"trained, {name}"] - curves[f"untrained, {name}"] for name in ("few", "all"))
    return [
        exceeds(
            f"gain of training with {SMALL:.0%} of the probe's data above that with all", few - whole, 0.0, "accuracy"
        )
    ]


FINDING = Finding(
    id="probing:P-2",
    claim="What pretraining gives shows where a probe has little training data of its own.",
    source=LESSONS,
    published="the gap to random weights vanishes with all training data, and reappears with 1 % of it (unverified)",
    statistic=f"accuracy of the best layer, trained less untrained, larger with {SMALL:.0%} of the probe's training "
    "sentences than with all",
    reads=READS,
    test=test,
    controls=(Control(name="control task", reads=_reads("control")),),
    learned=(MASKED,),
    given=Given(),
    minimum_seeds=1,
)
