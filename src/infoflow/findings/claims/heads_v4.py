"""heads:V4. The functions of the translation encoder's heads when few of them are left."""

from .._condition import SHARE, Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import TRANSLATION
from .._pruned_models import surviving_roles
from .._sources import HEAVY_LIFTING
from .._table import Reading

MOST = 0.8

READS: dict[str, Reading] = {"survive": surviving_roles()}


def test(curves: Curves) -> list[Condition]:
    return [
        exceeds(
            "share of the functions that some living head still has",
            curves["survive"][:, :1],
            MOST,
            "share of functions",
            bounds=SHARE,
            of=int(curves["survive"][0, 1]),
            published=1.0,
        )
    ]


FINDING = Finding(
    id="heads:V4",
    claim="The heads that survive pruning keep the functions that the encoder had.",
    source=HEAVY_LIFTING,
    published="the model with 17 of 48 encoder heads keeps all functions; they go one after the other below that",
    statistic=(
        f"over {MOST:.0%} of the roles that some encoder head of the converged model has are still some living head's "
        "at the point of the sweep nearest to 17 of 48 heads, with fewer than half of them left; roles are measured "
        "again there, by the same thresholds"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(
            name="as many random heads of the converged model (expected share)",
            reads={"survive": surviving_roles("random")},
        ),
    ),
    learned=(TRANSLATION,),
)
