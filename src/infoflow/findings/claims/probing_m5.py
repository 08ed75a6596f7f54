"""probing:M-5. Which of the two orders layers alike under other settings."""

from .._condition import CORRELATION, Condition, exceeds
from .._finding import Control, Curves, Finding, Given
from .._model_group import MASKED
from .._probing import TOKEN_TASKS, accuracy, bits, shuffled_layers
from .._shapes import spearman
from .._sources import DESCRIPTION_LENGTH
from .._table import Reading

LEAST = 0.9
READS: dict[str, Reading] = {
    "online": bits(MASKED),
    "variational": bits(MASKED, code="variational"),
    "linear": accuracy(MASKED, TOKEN_TASKS),
    "mlp": accuracy(MASKED, TOKEN_TASKS, probe="mlp"),
}


def test(curves: Curves) -> list[Condition]:
    of_codes = spearman(curves["online"], curves["variational"])
    of_accuracies = spearman(curves["linear"], curves["mlp"])
    return [
        exceeds("rank correlation over layers of two codes", of_codes, LEAST, "", bounds=CORRELATION, published=1.0),
        exceeds("the same less that of the accuracies of two probes", of_codes - of_accuracies, 0.0, "", alone=False),
    ]


FINDING = Finding(
    id="probing:M-5",
    claim="Description length orders layers alike under other settings; accuracy does not.",
    source=DESCRIPTION_LENGTH,
    published="codes order the layers of ELMo alike in all settings; accuracies of layers 1 and 2 change places with "
    "the seed (97.48 and 97.31, 97.38 and 97.48)",
    statistic=f"rank correlation over layers of online and variational code at least {LEAST}, and above that of the "
    "accuracies of a linear and a nonlinear probe",
    reads=READS,
    test=test,
    controls=(Control(name="layers in random order", reads=READS, transform=shuffled_layers),),
    learned=(MASKED,),
    given=Given(),
    minimum_seeds=1,
)
