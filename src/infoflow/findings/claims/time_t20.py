"""time:T20. The dip of identity, and bigrams."""

from .._apart_over_time import identity_dip
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import MASKED
from .._sources import OURS
from .._table import Reading

READS: dict[str, Reading] = {"dip": identity_dip(MASKED)}


def test(curves: Curves) -> list[Condition]:
    depth, later = (curves["dip"][:, [place]] for place in range(2))
    return [
        exceeds("depth of the dip over layers at the end", depth, 0.04, "nats", alone=False),
        exceeds("from the minimum of KL(Q2||P) to half of that depth", later, 0.0, "doublings of updates"),
    ]


FINDING = Finding(
    id="time:T20",
    claim="In a masked LM, the loss of token identity and its return over the layers come after n-grams are learned.",
    source=OURS,
    published="none: ours, exploratory",
    statistic=(
        "information of states with the input token, corrupted as in training: at the end a dip of .04 nats or more "
        "between the first and the last state (the threshold of representations:V-3); half of its depth comes after "
        "the divergence from bigrams was least"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(name="step 0 at all checkpoints", reads={"dip": identity_dip(MASKED, at_start=True)}, decisive=False),
        # There the published dip is: representations:V-3.
        Control(name="nothing masked", reads={"dip": identity_dip(MASKED, "clean")}, decisive=False),
    ),
    learned=(MASKED,),
    uncontrolled="where nothing changes from step 0 on, nothing comes later",
)
