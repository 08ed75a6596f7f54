"""probing:M-3. Layers that learned nothing."""

from .._condition import Condition, stays_below
from .._finding import Control, Curves, Finding, Given
from .._model_group import MASKED
from .._probing import bits
from .._sources import DESCRIPTION_LENGTH
from .._table import Reading, untrained

MOST = 0.05
READS: dict[str, Reading] = untrained({"bits": bits(MASKED)})


def test(curves: Curves) -> list[Condition]:
    above = curves["bits"][:, 1:]
    spread = (above.max(axis=1) - above.min(axis=1)) / above.mean(axis=1)
    return [
        stays_below(
            "range of the code over layers 1 to L, over its mean", spread[:, None], MOST, "ratio", published=0.0
        )
    ]


FINDING = Finding(
    id="probing:M-3",
    claim="The layers of a random model do not evolve: the code is as long in each.",
    source=DESCRIPTION_LENGTH,
    published="the layers of a random model are identical",
    statistic=f"range of the online code over layers 1 to L of an untrained model at most {MOST:.0%} of its mean (our "
    "threshold)",
    reads=READS,
    test=test,
    controls=(Control(name="trained model", reads={"bits": bits(MASKED)}),),
    learned=(MASKED,),
    given=Given(),
    minimum_seeds=1,
)
