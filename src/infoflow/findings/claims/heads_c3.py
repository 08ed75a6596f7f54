"""heads:C3. A coreference head of the masked LM."""

from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._heads import BestHeads
from .._reading import Reading, untrained
from .._sources import CLARK


def _gain(less: str) -> BestHeads:
    return BestHeads(table="head_coreference", objective="masked-lm", columns=({"mention": "all"},), less=less)


READS: dict[str, Reading] = {"nearest": _gain("baseline"), "match": _gain("head_match")}


def test(curves: Curves) -> list[Condition]:
    return [
        Condition(
            name=f"accuracy of the best head above that of {control}",
            values=curves[name],
            labels=["all mentions"],
            threshold=0.0,
            unit="share of mentions",
        )
        for name, control in (("nearest", "the nearest mention"), ("match", "the last mention with the same head word"))
    ]


FINDING = Finding(
    id="heads:C3",
    claim="A head of a masked LM attends from a mention to its antecedent, more often right than simple rules.",
    source=CLARK,
    published="BERT-base on CoNLL-2012, in per cent: head 5-4 65, head-word match 52, nearest mention 27, a rule-based "
    "system 69",
    statistic="the best head picks an antecedent's head word more often than the nearest mention and than head match",
    reads=READS,
    test=test,
    controls=(Control(name="untrained model", reads=untrained(READS)),),
    learned=("masked-lm",),
    minimum_seeds=1,
)
