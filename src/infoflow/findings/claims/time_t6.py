"""time:T6. Syntactic heads, loss and grammar scores."""

from .._condition import Condition, exceeds, stays_below
from .._finding import Control, Curves, Finding
from .._model_group import MASKED
from .._probes_over_time import heads_with_the_loss
from .._sources import SUDDEN_DROPS
from .._table import Reading

READS: dict[str, Reading] = {"heads": heads_with_the_loss()}


def test(curves: Curves) -> list[Condition]:
    abrupt, apart, grammar = (curves["heads"][:, [place]] for place in range(3))
    unit, relations = "doublings of updates", int(curves["heads"][0, 3])
    return [
        exceeds(
            "share of relations whose best head comes at once",
            abrupt,
            0.5,
            "share of curves",
            alone=False,
            of=relations,
        ),
        stays_below("from their middle to the steepest fall of the loss", apart, 0.5, unit),
        exceeds("from their middle to that of the gain in minimal pairs", grammar, 0.0, unit, alone=False),
    ]


FINDING = Finding(
    id="time:T6",
    claim=(
        "In a masked LM, heads of dependency relations appear at once, with a steep fall of the loss, before "
        "grammar is mastered."
    ),
    source=SUDDEN_DROPS,
    published="attention structure at about 20,000 of 1,000,000 updates, grammar scores at 20,000 to 30,000",
    statistic=(
        "best heads of dependency relations: most of their curves abrupt by the rules of the table `phases`; their "
        "middle in or half a doubling beside the two checkpoints between which the test loss falls most; half of the "
        "gain in minimal pairs comes later (thresholds ours)"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(
            name="heads that attend to fixed places, for those of relations",
            reads={"heads": heads_with_the_loss(positions=True)},
        ),
    ),
    learned=(MASKED,),
)
