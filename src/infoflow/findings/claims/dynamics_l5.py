"""dynamics:L5. Not tested: no study trains with a frozen last layer."""

from .._allocation import NotRecorded
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._reading import Reading
from .._sources import LOSS_CHANGE

READS: dict[str, Reading] = {
    "frozen": NotRecorded(
        needs="it needs trainings whose last layer is frozen or has a lower momentum, which a study does not run"
    )
}


def test(curves: Curves) -> list[Condition]:
    helped = curves["frozen"]
    labels = [str(layer) for layer in range(helped.shape[1])]
    return [Condition(name="fall of the other layers' help", values=helped, labels=labels, threshold=0.0, unit="share")]


FINDING = Finding(
    id="dynamics:L5",
    claim="Freezing the last layer where it hurts, or lowering its momentum, makes the other layers help less.",
    source=LOSS_CHANGE,
    published="interventions on the last layer of a ResNet (unverified: not read at the source)",
    statistic="not tested: the other layers' share under the intervention, less their share without it",
    reads=READS,
    test=test,
    controls=(Control(name="another layer frozen", reads=READS),),
    learned=("causal-lm", "masked-lm", "translation"),
)
