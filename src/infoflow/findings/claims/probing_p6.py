"""probing:P-6. What translation keeps and language models lose: syntax at the top."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL, TRANSLATION
from .._probing import accuracy
from .._shapes import layer_names
from .._sources import HIERARCHICAL_SYNTAX
from .._table import Reading, untrained

TASKS = ("grandparent", "parent")
READS: dict[str, Reading] = {"causal LM": accuracy(CAUSAL, TASKS), "translation": accuracy(TRANSLATION, TASKS)}


def test(curves: Curves) -> list[Condition]:
    causal, translation = curves["causal LM"], curves["translation"]
    names = layer_names(causal.shape[1] - 1, 0)
    return [
        exceeds(
            "causal LM: some layer above the top",
            causal[:, :-1] - causal[:, -1:],
            0.0,
            "accuracy",
            names,
            over="any",
            alone=False,
        ),
        exceeds(
            "translation: the top above every other layer",
            translation[:, -1:] - translation[:, :-1],
            0.0,
            "accuracy",
            names,
        ),
    ]


FINDING = Finding(
    id="probing:P-6",
    claim="A translation encoder's states tell more of a word's constituents the higher the layer; a language model's "
    "rise and fall.",
    source=HIERARCHICAL_SYNTAX,
    published="translation rises to its top layer, language models are best in the middle (unverified)",
    statistic="label of the constituent two above (subtree of the dependency tree here), linear probe: the causal LM's "
    "top lies below its best layer, the translation encoder's top is its best layer",
    reads=READS,
    test=test,
    controls=(Control(name="untrained models", reads=untrained(READS)),),
    learned=(CAUSAL, TRANSLATION),
)
