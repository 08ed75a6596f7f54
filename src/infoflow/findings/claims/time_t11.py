"""time:T11. Translations are first text of the target language."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import TRANSLATION
from .._over_time import language_first
from .._sources import TRANSLATION_STAGES
from .._table import Reading

READS: dict[str, Reading] = {"language": language_first()}


def test(curves: Curves) -> list[Condition]:
    score, later = (curves["language"][:, [place]] for place in range(2))
    return [
        exceeds("score under bigrams before half of chrF's rise, above the references'", score, 0.0, "nats per token"),
        exceeds("from its maximum to that of the score under 5-grams", later, -1e-9, "doublings", alone=False),
    ]


FINDING = Finding(
    id="time:T11",
    claim="A translation model is first a language model of its target side.",
    source=TRANSLATION_STAGES,
    published="scores under n-grams of the target side rise above the references' before its quality does",
    statistic=(
        "mean log-probability of greedy translations under bigrams of the training targets, less the references': "
        "above 0 at some checkpoint before half of chrF's rise; its maximum not later than that under 5-grams"
    ),
    reads=READS,
    test=test,
    controls=(Control(name="words drawn by their frequency alone", reads={"language": language_first("baseline")}),),
    learned=(TRANSLATION,),
)
