"""heads:M5. Effects of single ablations on two domains: the study's own sentences and those of `transfer_name`."""

from .._ablated_heads import SeedNumber
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._reading import Reading, baselines
from .._sources import SIXTEEN_HEADS

READS: dict[str, Reading] = {"correlation": SeedNumber(table="ablation_transfer", objective="translation")}


def test(curves: Curves) -> list[Condition]:
    return [
        Condition(
            name="correlation of the effects of ablation between two domains",
            values=curves["correlation"],
            labels=["all heads"],
            threshold=0.3,
            unit="Pearson's r",
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
    learned=("translation",),
    minimum_seeds=1,
)
