"""Claims about heads: V6, V7, V8, V9."""

import numpy as np

from infoflow.heads import HEAD_RARE_TOKEN, HEAD_RELATIONS

from .._finding import CORRELATION, GAIN, SHARE, Condition, Control, Curves, claim, exceeds, stays_below
from .._head_numbers import CHOSEN, POSITIONAL, best_heads, dominant_heads, heads, one_head, positional_heads
from .._model_group import TRANSLATION
from .._sources import HEAVY_LIFTING
from .._table import Reading, baselines, untrained

DOMINANT = 1.5


EQUAL = 1.0


@claim(
    "heads:V6",
    "Few heads of a translation encoder dominate each layer, and relevant heads are confident, except for the "
    "rare-token head of the first layer, which is relevant too.",
    source=HEAVY_LIFTING,
    published="a few heads of each layer hold most of its relevance, in a figure without numbers; heads with high "
    "relevance have high confidence, except one in the first layer that points to rare tokens",
    statistic="in every layer the most relevant head has over 1.5 times an equal share of the relevance; relevance and "
    "confidence correlate over all heads but the first layer's rare-token head, which has more than an equal share",
    reads={"heads": dominant_heads()},
    minimum_seeds=1,
)
def v6(curves: Curves) -> list[Condition]:
    numbers = curves["heads"]
    top, agreement, rare = numbers[:, :-2], numbers[:, -2:-1], numbers[:, -1:]
    conditions = [
        exceeds(
            "share of the most relevant head of each layer",
            top,
            DOMINANT,
            "times an equal share",
            [f"block {layer}" for layer in range(top.shape[1])],
        ),
        exceeds(
            "agreement of relevance and confidence over heads",
            agreement,
            0.0,
            "Spearman's correlation",
            bounds=CORRELATION,
        ),
    ]
    if np.isnan(rare[0]).all():  # rare-token scores were not measured
        return conditions
    exception = exceeds("share of the first layer's rare-token head", rare, EQUAL, "times an equal share")
    return [*conditions, exception]


MOST, CHANCE = 0.5, 0.0


@claim(
    "heads:V7",
    "One head of a translation encoder's first layer points to the rarest tokens of a sentence.",
    source=HEAVY_LIFTING,
    published="OpenSubtitles: 66 % of the time to the rarest token, 83 % to one of the two rarest; WMT: over 50 % to "
    "one of the two rarest",
    statistic="some head of block 0 attends most to one of the two rarest tokens at over half of the queries, in "
    "sentences with a token outside the 500 most frequent; it also attends most to the rarest token more often than "
    f"uniform attention, and than with shuffled frequency ranks; it is {CHOSEN}",
    reads={
        "head": one_head(
            *(heads(HEAD_RARE_TOKEN.name, TRANSLATION, layer=0, rarest=rarest) for rarest in (2, 1)),
            less_baseline=(False, True),
            thresholds=(MOST, CHANCE),
        )
    },
    minimum_seeds=1,
)
def v7(curves: Curves) -> list[Condition]:
    """Both numbers belong to the same head."""
    return [
        exceeds(
            "share of queries at which one head of block 0 attends most to one of the two rarest tokens",
            curves["head"][:, :1],
            MOST,
            "share of queries",
            bounds=SHARE,
            published=0.83,
        ),
        exceeds(
            "the same head's share for the rarest token, beyond that of uniform attention and of shuffled ranks",
            curves["head"][:, 1:],
            CHANCE,
            "share of queries",
        ),
    ]


_V8_READS: dict[str, Reading] = {"heads": positional_heads()}


@claim(
    "heads:V8",
    "A translation encoder has positional heads; they look at the previous or the next token, and are confident.",
    source=HEAVY_LIFTING,
    cause="A deep decoder does the encoder's work: the best head for the previous token was right for up to .90 of the "
    "queries with one decoder layer, but only for up to .61 with six.",
    examined="laptop",
    published="positional heads attend at least 90 % of the time to one offset, in practice −1 or +1, with a mean "
    "largest weight above .8",
    statistic="some head attends most to offset −1 or +1 at over 90 % of tokens, no head does so at another measured "
    f"offset, and the mean confidence of these heads lies above .8; heads are {CHOSEN}",
    reads=_V8_READS,
    controls=(
        Control("untrained model", untrained(_V8_READS)),
        Control("a random admissible key, uniform attention", baselines(_V8_READS)),
    ),
    minimum_seeds=1,
)
def v8(curves: Curves) -> list[Condition]:
    adjacent, other, confidence = (curves["heads"][:, column : column + 1] for column in range(3))
    conditions = [
        exceeds("mean confidence of the positional heads", confidence, 0.8, "attention weight", bounds=SHARE),
        exceeds(
            "share of tokens at which the most positional head attends most to a neighbour (offset −1 or +1)",
            adjacent,
            POSITIONAL,
            "share of tokens",
            bounds=SHARE,
        ),
    ]
    if np.isnan(other[0]).all():  # no other offset was measured
        return conditions
    elsewhere = stays_below(
        "the same at any other offset",
        other,
        POSITIONAL,
        "share of tokens",
        bounds=SHARE,
        alone=False,  # a model without positional heads has none at other offsets
    )
    return [*conditions, elsewhere]


_SUBJECT, _OBJECT = ("nsubj",), ("obj", "dobj")


MARGIN = 0.10


def _gain(*relations: tuple[str, ...]) -> Reading:
    tables = [heads(HEAD_RELATIONS.name, TRANSLATION, convention="voita", relation=relation) for relation in relations]
    return best_heads(*tables, less="baseline")


@claim(
    "heads:V9",
    "A translation encoder has heads that follow syntactic relations better than any fixed offset does.",
    source=HEAVY_LIFTING,
    cause="Short phrases: the same offset fits most words of a relation, and no head beat that.",
    examined="grammar",
    published="best head and baseline in per cent on WMT: subject 45 and 52 over 35, object 78 and 73 over 41, "
    "adjectives 74 and 82 over 72, adverbs 48 and 46 over 52; OpenSubtitles: 77 and 70 over 45, 61 and 84 over 46, 81 "
    "over 80, 38 and 42 over 33",
    statistic="for subjects and for objects, some head exceeds the relation's most frequent offset by 10 percentage "
    "points in one of the directions; for adjectives and adverbs, the mean gain is above 0 (the published gains are "
    f"small, and one is negative); heads are {CHOSEN}",
    reads={"core": _gain(_SUBJECT, _OBJECT), "modifiers": _gain(("amod",), ("advmod",))},
    minimum_seeds=1,
)
def v9(curves: Curves) -> list[Condition]:
    core = exceeds(
        "accuracy of the best head, in its better direction, above that of the best fixed offset",
        curves["core"],
        MARGIN,
        "share of edges",
        ["subjects", "objects"],
        bounds=GAIN,
        published=0.17,
    )
    modifiers = exceeds(
        "accuracy of the best head above that of the best fixed offset, averaged over adjectives and adverbs",
        curves["modifiers"].mean(axis=1, keepdims=True),
        0.0,
        "share of edges",
        bounds=GAIN,
        published=0.03,
    )
    return [core, modifiers]
