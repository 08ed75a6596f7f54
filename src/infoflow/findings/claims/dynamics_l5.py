"""dynamics:L5. Interventions on the last layer."""

from .._finding import Untested
from .._sources import LOSS_CHANGE

FINDING = Untested(
    id="dynamics:L5",
    claim="Freezing the last layer where it hurts, or lowering its momentum, makes the other layers help less.",
    source=LOSS_CHANGE,
    published="interventions on the last layer of a ResNet (unverified: not read at the source)",
    why="it needs trainings whose last layer is frozen or has a lower momentum, which a study does not run",
)
