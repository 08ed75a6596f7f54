"""time:T2. How far layers are on their way after a fifth of the training."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL
from .._over_time import settled_share
from .._sources import CONVERGENCE_DYNAMICS
from .._table import Reading

SHARE = 0.2
READS: dict[str, Reading] = {"done": settled_share(CAUSAL, SHARE)}


def test(curves: Curves) -> list[Condition]:
    name = "share of the way to the final states after a fifth of the updates, mean over layers"
    return [exceeds(name, curves["done"], 0.8, "share of 1 - CKA at step 0")]


FINDING = Finding(
    id="time:T2",
    claim="Most layers are near their end after a fifth of the training.",
    source=CONVERGENCE_DYNAMICS,
    published="nearly all layers of larger Pythia models within the first 20 % of training; small ones later, unstable",
    statistic="debiased CKA to the final states, as the share of the way from step 0, mean over layers at .2 of the "
    "updates: at least .8",
    reads=READS,
    test=test,
    controls=(
        Control(
            name="final weights with noise as large as what is left of the way",
            reads={"done": settled_share(CAUSAL, SHARE, number="null")},
        ),
        Control(
            name="another seed's final model, which nothing draws them to",
            reads={"done": settled_share(CAUSAL, SHARE, reference="other-seed")},
        ),
    ),
    learned=(CAUSAL,),
)
