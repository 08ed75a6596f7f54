"""time:T5. The order in which probes rise."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL
from .._probes_over_time import probe_times
from .._sources import SAPHRA
from .._table import Reading

TASKS = (("upos", "xpos"), ("arc-label", "deprel", "arc"), ("coreference",))
READS: dict[str, Reading] = {"apart": probe_times(CAUSAL, *TASKS)}


def test(curves: Curves) -> list[Condition]:
    name, unit = "from the middle of the gain of {} to that of {}", "doublings of updates"
    steps = (("parts of speech", "dependencies"), ("dependencies", "coreference"))
    return [
        exceeds(name.format(*pair), curves["apart"][:, [at]], 0.0, unit, alone=False) for at, pair in enumerate(steps)
    ]


FINDING = Finding(
    id="time:T5",
    claim="Parts of speech are learned before dependencies, these before coreference.",
    source=SAPHRA,
    published="parts of speech before topic in a language model; order of scores, no single number",
    statistic=(
        "linear probes that are trained anew at every checkpoint: half of the gain in accuracy over step 0, in the "
        "layer that is best at the end, comes first for parts of speech, then for dependencies, then for coreference"
    ),
    reads=READS,
    test=test,
    controls=(Control(name="control labels", reads={"apart": probe_times(CAUSAL, *TASKS, labels="control")}),),
    learned=(CAUSAL,),
)
