"""probing:M-6. Small probes for linguistic tasks, large ones for random labels."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding, Given
from .._model_group import MASKED
from .._probing import bits
from .._shapes import layer_names
from .._sources import DESCRIPTION_LENGTH
from .._table import Reading

LEAST = 2.0


def _reads(task: str, control: str) -> dict[str, Reading]:
    found = {}
    for name, labels in (("task", task), ("control", control)):
        for metric in ("surviving", "model_bits"):
            found[f"{name} {metric}"] = bits(MASKED, labels, "variational", metric)
    return found


READS: dict[str, Reading] = _reads("task", "control")


def test(curves: Curves) -> list[Condition]:
    names = {"surviving": "inputs that survive", "model_bits": "bits of the model"}
    return [
        exceeds(
            f"{told}, control task over task, every layer",
            (ratio := curves[f"control {metric}"] / curves[f"task {metric}"]),
            LEAST,
            "ratio",
            layer_names(ratio.shape[1], 0),
            alone=metric == "model_bits",
        )
        for metric, told in names.items()
    ]


FINDING = Finding(
    id="probing:M-6",
    claim="The variational code finds a small probe for a linguistic task and a dense one for random labels.",
    source=DESCRIPTION_LENGTH,
    published="33 to 75 of 1,000 neurons of later layers survive for linguistic tasks, far more for control tasks",
    statistic=f"surviving inputs and bits of the model at least {LEAST:g} times as many for the control task, in every "
    "layer",
    reads=READS,
    test=test,
    controls=(Control(name="shuffled labels in place of the task", reads=_reads("shuffled", "control")),),
    learned=(MASKED,),
    given=Given(),
    minimum_seeds=1,
)
