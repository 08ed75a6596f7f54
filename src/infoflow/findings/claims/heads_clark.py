"""Claims about heads: C1, C2, C3, C4, C5."""

from infoflow.heads import (
    HEAD_COREFERENCE,
    HEAD_LAYER_DISTANCE,
    HEAD_PROBE,
    HEAD_RELATIONS,
    HEAD_SPECIAL_GRADIENT,
    HEAD_SURFACE,
)

from .._finding import GAIN, SHARE, Condition, Curves, claim, exceeds, stays_below
from .._head_numbers import CHOSEN, best_heads, busiest_layer, heads
from .._model_group import MASKED
from .._sources import CLARK
from .._table import Reading, Table

_RELATIONS = {"determiners": ("det",), "objects": ("obj", "dobj"), "subjects": ("nsubj",), "adjectives": ("amod",)}


@claim(
    "heads:C1",
    "Single heads of a masked LM find the head of a word in certain dependency relations, far better than a fixed "
    "offset does.",
    source=CLARK,
    cause="Short phrases: the same offset fits most words of a relation, and no head beat that. Trained heads followed "
    "relations up to 25 times as often as untrained ones.",
    examined="grammar",
    published="BERT-base on Stanford Dependencies, best head over best offset, in per cent: det 94.3 over 51.7, dobj "
    "86.8 over 40.0, nsubj 58.5 over 45.5, amod 75.6 over 68.3; no head does well on all relations (34.5)",
    statistic="for determiners, objects, subjects and adjectives, the best head (in its better direction) is above "
    f"the best offset from -3 to 2, and by over ten points on average; heads are {CHOSEN}",
    reads={
        "gain": best_heads(
            *(
                heads(HEAD_RELATIONS.name, MASKED, convention="clark", relation=relation)
                for relation in _RELATIONS.values()
            ),
            less="baseline",
        )
    },
    minimum_seeds=1,
)
def c1(curves: Curves) -> list[Condition]:
    each = exceeds(
        "accuracy of the relation's best head above that of the best fixed offset",
        curves["gain"],
        0.0,
        "share of words",
        list(_RELATIONS),
        bounds=GAIN,
        published=0.073,
    )
    mean = exceeds(
        "accuracy of the best head above that of the best fixed offset, averaged over these relations",
        curves["gain"].mean(axis=1, keepdims=True),
        0.1,
        "share of words",
        bounds=GAIN,
        published=0.274,
    )
    return [each, mean]


def _score(probe: str, less: str = "") -> Reading:
    return best_heads(Table(HEAD_PROBE.name, MASKED, known=True).where(probe=(probe,)), less=less)


@claim(
    "heads:C2",
    "The attention maps of all heads of a masked LM together encode much of a sentence's dependency tree.",
    source=CLARK,
    published="unlabelled attachment score on the Penn Treebank, in per cent: attention 61, attention and GloVe 77, "
    "distances and GloVe 58, an untrained BERT and GloVe 30, right-branching 26",
    statistic="a linear combination of attention maps attaches more words correctly than attaching each word to its "
    "neighbour (on the better side), and attention with word vectors attaches more than distances with word vectors",
    reads={
        "attention": _score("attention", less="baseline"),
        "words": _score("attention+words"),
        "distance": _score("distance+words"),
    },
    minimum_seeds=1,
)
def c2(curves: Curves) -> list[Condition]:
    return [
        exceeds(
            "unlabelled attachment of the attention-only probe above that of the neighbouring word",
            curves["attention"],
            0.0,
            "share of words",
            published=0.35,
        ),
        exceeds(
            "the attention-and-words probe above the distance-and-words probe",
            curves["words"] - curves["distance"],
            0.0,
            "share of words",
            published=0.19,
        ),
    ]


def _gain(less: str) -> Reading:
    return best_heads(heads(HEAD_COREFERENCE.name, MASKED, mention="all"), less=less)


@claim(
    "heads:C3",
    "A head of a masked LM attends from a mention to its antecedent, and is right more often than simple rules.",
    source=CLARK,
    published="BERT-base on CoNLL-2012, in per cent: head 5-4 65, head-word match 52, nearest mention 27, a "
    "rule-based system 69",
    statistic="the best head picks an antecedent's head word more often than the rules “nearest mention” and "
    f"“head-word match”; it is {CHOSEN}",
    reads={"nearest": _gain("baseline"), "match": _gain("head_match")},
    minimum_seeds=1,
)
def c3(curves: Curves) -> list[Condition]:
    return [
        exceeds(
            f"accuracy of the best head above that of {control}",
            curves[name],
            0.0,
            "share of mentions",
            bounds=GAIN,
            published=gain,
        )
        for name, control, gain in (
            ("nearest", "the nearest mention", 0.38),
            ("match", "the last mention with the same head word", 0.13),
        )
    ]


def _surface(statistic: str) -> Table:
    return heads(HEAD_SURFACE.name, MASKED, statistic=statistic)


@claim(
    "heads:C4",
    "Heads of a masked LM attend to SEP where their function does not apply: much attention, little effect.",
    source=CLARK,
    published="over half of BERT's attention in layers 6 to 10 is on SEP; there, SEP has over 90 % of its own on SEP; "
    "the loss's gradient with respect to that attention is small from layer 5 on (a figure)",
    statistic="in the layer with most attention on SEP, more than half of all attention, and of SEP's own, falls on "
    "SEP, and the gradient of the loss with respect to that attention is smaller than that for attention on the most "
    f"frequent other tokens; the layer is {CHOSEN}",
    reads={
        "layer": busiest_layer(
            _surface("sep"), _surface("sep_to_sep"), relative=heads(HEAD_SPECIAL_GRADIENT.name, MASKED)
        )
    },
    minimum_seeds=1,
)
def c4(curves: Curves) -> list[Condition]:
    at = ["the block where SEP has most attention"]
    mass, own, gradient = (curves["layer"][:, column : column + 1] for column in range(3))
    return [
        exceeds("attention to SEP", mass, 0.5, "share of attention", at, bounds=SHARE),
        exceeds("attention of SEP to SEP", own, 0.5, "share of attention", at, bounds=SHARE),
        stays_below(
            "gradient of the loss with respect to attention to SEP, relative to other frequent tokens",
            gradient,
            1.0,
            "ratio",
            at,
        ),
    ]


BROAD = -1.05


@claim(
    "heads:C5",
    "A masked LM has heads for the previous and for the next token and heads that attend broadly, and heads of one "
    "layer attend alike.",
    source=CLARK,
    published="BERT-base: 4 heads (layers 2, 4, 7, 8) with over 50 % on the previous token, 5 (layers 1, 2, 2, 3, 6) "
    "on the next; broad heads in the lowest layers; heads of one layer lie together in a map of their distances",
    statistic="some head has over half of its attention on the previous token, some head on the next one, the entropy "
    "of some head is within 1.05 nats of uniform attention's, and heads of one layer diverge less than heads of "
    f"permuted layers; the heads are {CHOSEN}",
    reads={
        "positions": best_heads(_surface("previous"), _surface("next")),
        "broad": best_heads(_surface("entropy"), less="baseline"),
        "layers": best_heads(heads(HEAD_LAYER_DISTANCE.name, MASKED, pairs="difference"), less="baseline"),
    },
    minimum_seeds=1,
)
def c5(curves: Curves) -> list[Condition]:
    return [
        exceeds(
            "mean attention of the most positional head",
            curves["positions"],
            0.5,
            "share of attention",
            ["previous token", "next token"],
            bounds=SHARE,
        ),
        exceeds(
            "entropy of the broadest head, minus that of uniform attention",
            curves["broad"],
            BROAD,
            "nats",
            alone=False,  # all heads attend broadly before training
        ),
        exceeds(
            "divergence of heads across layers minus that within a layer, above the same with layers permuted",
            curves["layers"],
            0.0,
            "nats",
        ),
    ]
