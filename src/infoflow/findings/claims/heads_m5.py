"""heads:M5. Effects of single ablations on two domains: the study's own sentences and those of `transfer_name`."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import TRANSLATION
from .._sources import SIXTEEN_HEADS
from .._table import Reading, Table, baselines, one_number

TRANSFER = Table("ablation_transfer", TRANSLATION).where(kind="all")
READS: dict[str, Reading] = {"correlation": TRANSFER.reduce(one_number)}


def test(curves: Curves) -> list[Condition]:
    return [
        exceeds(
            "correlation of the effects of ablation between two domains",
            curves["correlation"],
            0.3,
            "Pearson's r",
            published=0.56,
        )
    ]


FINDING = Finding(
    id="heads:M5",
    claim="Heads that matter on one domain matter on another.",
    source=SIXTEEN_HEADS,
    published="Pearson's r .56 (WMT, news and TED talks), .68 (BERT, matched and mismatched MNLI)",
    statistic=(
        "correlation over heads of the change of the loss that each one's ablation makes on two corpora, above .3 "
        "(a plan whose [corpus] has a transfer_name, or heads.ablation_transfer)"
    ),
    reads=READS,
    test=test,
    controls=(Control(name="shuffled heads", reads=baselines(READS)),),
    learned=(TRANSLATION,),
    minimum_seeds=1,
)
