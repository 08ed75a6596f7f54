"""heads:C3. A coreference head of the masked LM."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._head_numbers import best_heads, heads
from .._model_group import MASKED
from .._sources import CLARK
from .._table import Reading, untrained


def _gain(less: str) -> Reading:
    return best_heads(heads("head_coreference", MASKED, mention="all"), less=less)


READS: dict[str, Reading] = {"nearest": _gain("baseline"), "match": _gain("head_match")}


def test(curves: Curves) -> list[Condition]:
    return [
        exceeds(
            f"accuracy of the best head above that of {control}", curves[name], 0.0, "share of mentions", published=gain
        )
        for name, control, gain in (
            ("nearest", "the nearest mention", 0.38),
            ("match", "the last mention with the same head word", 0.13),
        )
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
    learned=(MASKED,),
    minimum_seeds=1,
)
