"""time:T10. Heads that hold a role: the number stays, its members change."""

from .._condition import Condition, exceeds, stays_below
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL
from .._over_time import role_sets
from .._sources import CIRCUITS_OVER_TRAINING
from .._table import Reading

READS: dict[str, Reading] = {"roles": role_sets(CAUSAL)}


def test(curves: Curves) -> list[Condition]:
    spread, overlap, over_chance = (curves["roles"][:, [place]] for place in range(3))
    return [
        stays_below("spread of the number of heads, of the last one", spread, 0.2, "share", alone=False),
        stays_below("overlap with the checkpoint before", overlap, 0.9, "Jaccard index", alone=False),
        exceeds("the same over that of random sets", over_chance, 3.0, "times"),
    ]


FINDING = Finding(
    id="time:T10",
    claim="The heads of a role change while their number stays.",
    source=CIRCUITS_OVER_TRAINING,
    published="heads that implement an algorithm are replaced during training, the algorithm stays; no number",
    statistic=(
        "roles that at least two heads hold at the end, from where their number stays above .9 of the last one: it "
        "varies by less than a fifth, and the sets of neighbouring checkpoints share less than .9 but over three times "
        "what random sets of these sizes share; means over roles (thresholds ours)"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(name="random heads, as many", reads={"roles": role_sets(CAUSAL, "expected_previous")}, decisive=False),
    ),
    learned=(CAUSAL,),
    uncontrolled="the overlap is counted in units of what random sets share",
)
