"""adaptation:A-2. Tuning all weights, or a head on frozen features.

The source's four averages are recalled and not read. They say that tuning wins, and that it wins less after pretraining
on the domain (3.26 points) than without (3.58): the second half of the claim is not in them.
"""

from .._adaptation import FROZEN, FULL, IN_DOMAIN, SHUFFLED, means, tuned
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import MASKED
from .._sources import SCIBERT_PAPER
from .._table import Reading, Table

_UNTRAINED, _MIXED_UP = tuned(MASKED, trained=False), tuned(MASKED, control=SHUFFLED)


def _reads(general: Table, domain: Table) -> dict[str, Reading]:
    """What is tuned in full, without and with pretraining on the domain, beside frozen features."""
    return {
        "general": means(general, tuned(MASKED, FROZEN)),
        "domain": means(domain, tuned(MASKED, FROZEN, IN_DOMAIN)),
    }


READS = _reads(tuned(MASKED), tuned(MASKED, FULL, IN_DOMAIN))


def test(curves: Curves) -> list[Condition]:
    general, domain = (curves[name][:, :1] - curves[name][:, 1:] for name in ("general", "domain"))
    return [
        exceeds("score of tuning in full less that of frozen features", general, 0.0, "score", published=0.0358),
        exceeds(
            "this gain after pretraining on the domain, less that without",
            domain - general,
            0.0,
            "score",
            alone=False,
            published=-0.0032,
        ),
    ]


FINDING = Finding(
    id="adaptation:A-2",
    claim="Fine-tuning beats frozen features, and more so in-domain than out.",
    source=SCIBERT_PAPER,
    published="mean F1, frozen and fine-tuned: BERT 73.58 and 77.16, SciBERT 76.01 and 79.27 (gains of 3.58 and 3.26; "
    "recalled, not read)",
    statistic="main metric on test, mean over tasks: tuned in full above a head on frozen features, and further above "
    "it after pretraining on the domain (continued, else from scratch)",
    reads=READS,
    test=test,
    controls=(
        Control(
            name="untrained model, tuned in full, beside the frozen features", reads=_reads(_UNTRAINED, _UNTRAINED)
        ),
        Control(name="shuffled labels, tuned in full, beside the frozen features", reads=_reads(_MIXED_UP, _MIXED_UP)),
    ),
    learned=(MASKED,),
)
