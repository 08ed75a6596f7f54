"""Claims about retrieval: R15, R16, R17, R18, R19, R22, R23, R24."""

import numpy as np

from infoflow.findings._control import seeds_alone
from infoflow.findings._finding import (
    CORRELATION,
    SHARE,
    Condition,
    Control,
    Curves,
    claim,
    exceeds,
    short,
    stays_below,
)
from infoflow.findings._model_group import CLOSED_BOOK, GOLD_PAIRS, READ_RANDOM, RETRIEVE_LEARNED
from infoflow.findings._sources import (
    DISTILLED_READER,
    FACTUAL_RECALL,
    KNOWLEDGE_CONFLICTS,
    OURS,
    RARE_FACTS,
    RETRIEVAL_HEADS,
    RICH_PARAMETERS,
)
from infoflow.findings._table import Reading, baselines, untrained
from infoflow.results import Spec

from ._retrieval import (
    COMMON,
    HELD_OUT,
    OWN,
    RARE,
    TRAINED,
    copying,
    entry,
    followed,
    knows,
    lost,
    part_by_window,
    ranking,
    seeds_and_start,
    traced,
    unable_to_read,
    without_heads,
    without_random_heads,
)

RATIO, TIMES, NOTHING = 0.5, 3, 0.05
_LOST: dict[str, Reading] = {what: lost(GOLD_PAIRS, f"mask→{what}") for what in ("object", "subject")}


def hinders(curves: Curves, verdict: str) -> str | None:
    effect = curves["traced"][0, 0]
    if effect >= NOTHING:
        return None
    return (
        f"without a document, restoring the subject's last token restores a probability of {short(effect)}, below "
        f"{NOTHING}: the model uses no stored fact that a document could replace"
    )


@claim(
    "retrieval:R-15",
    "With a document, the fact stored at the subject is hardly used.",
    source=RICH_PARAMETERS,
    published="average indirect effect at the subject's last token .2 → .0375; blocking attention from the last "
    "token to the subject loses below 5 %, blocking that to the attribute 20–25 %",
    statistic=f"passages about two entities: largest effect of restoring the subject's last token below {RATIO} "
    f"of that without a document; knocking out mask→object costs over {TIMES} times as much as mask→subject (our "
    "thresholds)",
    reads={"traced": traced(GOLD_PAIRS), **_LOST},
    controls=(
        Control(name="as many random edges forbidden", reads={"traced": traced(GOLD_PAIRS), **baselines(_LOST)}),
    ),
    hinders=hinders,
    minimum_seeds=1,
)
def r15(curves: Curves) -> list[Condition]:
    """If a passage is about one entity, its reader need not look at the subject. The source's models were never trained
    with documents. If restoring the subject regains less than `NOTHING` without a document, no fact is stored there.
    """
    without, with_it = curves["traced"][:, :1], curves["traced"][:, 1:]
    more = curves["object"] - TIMES * curves["subject"]
    effect = "effect of the subject's last token with a document, divided by the effect without one"
    lost = f"answers lost without mask→object, minus {TIMES} times those lost without mask→subject"
    return [
        stays_below(effect, with_it / without, RATIO, "", published=0.19, alone=False),
        exceeds(lost, more, 0.0, "share"),
    ]


FEW, LEAST = 0.5, 0.2


def _from_memory(document: str) -> Reading:
    return without_heads(RETRIEVE_LEARNED, document, (TRAINED,), LEAST)


_R16_READS: dict[str, Reading] = {
    "copying": copying(RETRIEVE_LEARNED),
    "right": without_heads(RETRIEVE_LEARNED, "gold"),
}


@claim(
    "retrieval:R-16",
    "Few heads carry the evidence, and they matter.",
    source=RETRIEVAL_HEADS,
    published="under 5 % of heads, in every model that was tried; masking them makes the model lose the facts (as "
    "summarised)",
    statistic=f"heads with a copy score of .1 or more (reported; judged as few below {FEW}, our rule); right answers "
    f"lost without the quarter that copy most, beyond random heads: above {LEAST} (our threshold)",
    reads=_R16_READS,
    controls=(
        Control(name="random heads", reads=_R16_READS | {"right": without_random_heads(RETRIEVE_LEARNED, "gold")}),
        Control(name="no document", reads=_R16_READS | {"right": _from_memory("none")}),
        Control(name="random document", reads=_R16_READS | {"right": _from_memory("random")}),
    ),
    minimum_seeds=1,
)
def r16(curves: Curves) -> list[Condition]:
    """In small models, a single head is more than the source's 5 %. Random heads must cost less, or the heads that
    copy would be nothing special. Without evidence, removing the heads that copy must not cost answers from memory
    (on trained facts, since only these can be answered from memory).
    """
    more = curves["right"][:, 2:] - curves["right"][:, 1:2]
    heads = curves["copying"][:, :1]
    share = {"unit": "share of heads", "bounds": SHARE, "of": int(curves["copying"][0, 1])}
    lost = "right answers lost without the quarter that copy most, minus those without random heads"
    return [
        stays_below("share of heads with a copy score of .1 or more", heads, FEW, **share, alone=False, published=0.05),
        exceeds(lost, more, LEAST, "share"),
    ]


_R17_LEAST, KNOWN = 0.1, 0.2
_R17_READS: dict[str, Reading] = {
    "gold": without_heads(RETRIEVE_LEARNED, "gold", (TRAINED,)),
    "none": without_heads(RETRIEVE_LEARNED, "none", (TRAINED,), KNOWN),
}


def random_heads(curves: dict) -> dict:
    """The same accuracies, with as many random heads removed instead of those that copy."""
    return {name: one[:, [0, 2, 2]] for name, one in curves.items()}


@claim(
    "retrieval:R-17",
    "Heads that carry evidence are not those that recall from memory.",
    source=FACTUAL_RECALL,
    published="none, the claim is ours; scaling a single head moves answers from memory to context (as summarised)",
    statistic="right answers on trained facts that are lost without the quarter of heads that copy most: with the "
    f"right document more than without one, by {_R17_LEAST}; at least {KNOWN} must be right without one "
    f"(our thresholds)",
    reads=_R17_READS,
    controls=(Control(name="random heads", reads=_R17_READS, transform=random_heads),),
    minimum_seeds=1,
)
def r17(curves: Curves) -> list[Condition]:
    """If fewer than `KNOWN` are correct without a document, there is no memory that removing heads could destroy."""
    lost = {name: one[:, :1] - one[:, 1:2] for name, one in curves.items()}
    name = "right answers lost with the document minus those without"
    return [exceeds(name, lost["gold"] - lost["none"], _R17_LEAST, "share")]


_R18_RATIO, RIGHT = 0.5, 0.2
_OF = {"closed": CLOSED_BOOK, "learned": RETRIEVE_LEARNED}
_R18_READS: dict[str, Reading] = {
    **{f"{name} ratio": followed(reader) for name, reader in _OF.items()},
    "slope": followed(CLOSED_BOOK, slope=True),
    **{f"{name} random": knows(reader, TRAINED, "random") for name, reader in _OF.items()},
}


@claim(
    "retrieval:R-18",
    "Readers trained with retrieval follow the document; others follow their memory, and more so the more often they "
    "saw a fact.",
    source=KNOWLEDGE_CONFLICTS,
    published="memorisation ratios differ widely between models and grow with how often a fact was seen (as "
    "summarised)",
    statistic="documents that contradict a trained fact: the memorisation ratio of the closed-book reader is above the "
    f"other's by {_R18_RATIO} and rises with exposure; its share of right answers with a random document is above the "
    f"other's by {RIGHT} (our thresholds)",
    reads=_R18_READS,
    controls=seeds_and_start(
        _R18_READS,
        *(
            {f"{name} {what}": what for what in ("ratio", "random")} | ({"slope": "slope"} if name == "closed" else {})
            for name in _OF
        ),
    ),
)
def r18(curves: Curves) -> list[Condition]:
    ratio = curves["closed ratio"] - curves["learned ratio"]
    right = curves["closed random"] - curves["learned random"]
    return [
        exceeds("memorisation ratio, closed-book minus learned retriever", ratio, _R18_RATIO, ""),
        exceeds("slope of that ratio over log exposure, closed-book reader", curves["slope"], 0.0, "", alone=False),
        exceeds("right answers with a random document, closed-book minus learned retriever", right, RIGHT, "share"),
    ]


def _reads(reader: Spec, document: str | tuple[str, ...]) -> dict[str, Reading]:
    sides = {"reader": (reader, document), "closed": (CLOSED_BOOK, "none")}
    return {
        f"{side} {weight}": knows(one, TRAINED, what, weight=weight)
        for side, (one, what) in sides.items()
        for weight in (RARE, COMMON)
    }


_R19_READS = _reads(RETRIEVE_LEARNED, OWN)


@claim(
    "retrieval:R-19",
    "Retrieval helps rare facts most.",
    source=RARE_FACTS,
    published="retrieval helps most on rarely mentioned entities, least on popular ones (cited from memory)",
    statistic="right answers with passages minus those of the closed-book reader, trained facts: a gain on the rarest, "
    "and larger than on the most frequent",
    reads=_R19_READS,
    controls=(
        Control(name="reader of random passages", reads=_reads(READ_RANDOM, "random")),
        Control(name="untrained models", reads=unable_to_read(_R19_READS)),
    ),
    learned=(CLOSED_BOOK, READ_RANDOM, RETRIEVE_LEARNED),
)
def r19(curves: Curves) -> list[Condition]:
    """The paper is cited from memory.

    A larger gain on rare facts than on frequent ones is not enough, since useless documents also produce it: they
    cost the most accuracy where the model knew most. So rare facts must also gain by themselves.
    """
    rare, common = (curves[f"reader {weight}"] - curves[f"closed {weight}"] for weight in (RARE, COMMON))
    name = "gain in right answers by retrieval, rarest facts minus most frequent ones"
    return [
        exceeds(name, rare - common, 0.0, "share", alone=False),
        exceeds("gain on the rarest facts", rare, 0.0, "share"),
    ]


_R22_LEAST = 0.5
_R22_READS: dict[str, Reading] = {"agreement": ranking(RETRIEVE_LEARNED)}


@claim(
    "retrieval:R-22",
    "The reader's attention ranks passages by how much they help.",
    source=DISTILLED_READER,
    published="a retriever that learns from the reader's attention: Natural Questions recall@20 84.3",
    statistic="Spearman's correlation over candidates of the attention from the mask on a passage's evidence with its "
    f"posterior, mean over queries: above {_R22_LEAST} (our threshold)",
    reads=_R22_READS,
    controls=(Control(name="random heads", reads=baselines(_R22_READS)),),
    minimum_seeds=1,
)
def r22(curves: Curves) -> list[Condition]:
    """The source sums attention over layers and heads."""
    name = "rank correlation of attention on a passage with its posterior"
    return [exceeds(name, curves["agreement"], _R22_LEAST, "", bounds=CORRELATION)]


_R23_READS: dict[str, Reading] = {
    "evidence": entry(RETRIEVE_LEARNED, HELD_OUT, "gold"),
    "memory": entry(CLOSED_BOOK, TRAINED, "none", COMMON),
}


@claim(
    "retrieval:R-23",
    "Evidence enters at lower layers than those at which memory is read.",
    source=OURS,
    published="no published claim; what is measured is reported",
    statistic="tuned lens at the mask: the centre, over states, of what the right document adds on held-out facts "
    "(learned retriever), minus the centre of what the closed-book reader knows of the most frequent trained facts, is "
    "below 0; between the layers by which half is added or known, the difference is below 1 (our rule; reported)",
    reads=_R23_READS,
    controls=(
        seeds_alone(_R23_READS, "evidence", "memory"),
        Control(name="untrained models", reads=untrained(_R23_READS)),
    ),
    learned=(CLOSED_BOOK, RETRIEVE_LEARNED),
)
def r23(curves: Curves) -> list[Condition]:
    """Memory is measured on the most frequent facts, since a closed-book reader may know too few of all trained ones
    for a lens to locate them.
    """
    gap = curves["evidence"] - curves["memory"]
    return [
        stays_below("where evidence enters minus where memory is read", gap[:, 1:], 0.0, "layers"),
        stays_below("the same difference, for the layers that reach half", gap[:, :1], 1.0, "layers", alone=False),
    ]


@claim(
    "retrieval:R-24",
    "The retriever's share of the loss change comes early.",
    source=OURS,
    published="no published claim; what is measured is reported",
    statistic="share of the retriever in the loss change allocated to all parameters: in the first third of the "
    "windows since its first change above that in the last third (our rule; reported)",
    reads={"windows": part_by_window("retriever")},
    controls=(Control(name="the reader's embeddings", reads={"windows": part_by_window("embeddings")}),),
)
def r24(curves: Curves) -> list[Condition]:
    """A retriever is frozen at first (by default for a third of the updates), so windows before its first change are
    left out.
    """
    own, of_all = np.split(curves["windows"], 2, axis=1)
    third = own.shape[1] // 3
    first, last = (own[:, part].sum(1) / of_all[:, part].sum(1) for part in (slice(third), slice(-third, None)))
    name = "retriever's share of the loss change, first third of the windows in which it learns minus last third"
    return [exceeds(name, (first - last)[:, None], 0.0, "share")]
