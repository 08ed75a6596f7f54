"""representations:Z-5. Layer 0."""

from .._chance import seeds_alone
from .._condition import Condition, exceeds
from .._curves import geometry
from .._finding import Control, Curves, Finding
from .._model_group import MASKED, TRANSLATION
from .._sources import ENCODER_SPACES
from .._table import baselines, untrained

READS = {o.name: geometry(o, "average_similarity") for o in (TRANSLATION, MASKED)}


def test(curves: Curves) -> list[Condition]:
    return [
        exceeds(
            "average similarity of the translation encoder's embeddings over the masked LM's",
            curves["translation"][:, :1] - curves["masked-lm"][:, :1],
            0.05,
            "cosine",
        )
    ]


FINDING = Finding(
    id="representations:Z-5",
    claim="The embeddings of a translation encoder are more alike than those of a masked LM.",
    source=ENCODER_SPACES,
    published=(
        "no number: the figure that shows it is not readable. There a pretrained BERT is compared with a translation "
        "encoder of other data; here both models share data, tokens and initialisation"
    ),
    statistic="mean cosine of random word occurrences at layer 0: translation encoder over masked LM by more than .05",
    reads=READS,
    test=test,
    controls=(
        seeds_alone(READS, "translation", "masked-lm"),
        Control(name="isotropic Gaussian", reads=baselines(READS)),
        Control(name="untrained models", reads=untrained(READS)),
    ),
    learned=(TRANSLATION, MASKED),
)
