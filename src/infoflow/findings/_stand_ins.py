"""Proxies for end tasks in claims about objectives, until models are fine-tuned, and the costs of models.

A probe without parameters checks whether the nearest occurrences of a token carry the same tag (syntactic category,
part of speech, relation). For tasks on spans and on relations across a sentence, the best head's share of mentions
whose attention goes to an antecedent is used. Both examine the states and heads that objectives formed, on unseen text
that is the same for all.
"""

import numpy as np

from infoflow.heads import HEAD_COREFERENCE
from infoflow.representations import TAG_NEIGHBOURS
from infoflow.results import MATCH, Spec

from ._condition import Condition, exceeds
from ._finding import Curves
from ._head_numbers import best_heads, heads
from ._held_out import largest
from ._model_group import Absent
from ._table import Reading, SeedRows, Table, exact

PROBE = "share of nearest occurrences of a token with its tag, mean over tags, best layer"
STANDS_IN = f"End tasks are not trained: a probe stands in ({PROBE})."


def probe(objective: Spec, architecture: str = "", *, beyond_chance: bool = False) -> Reading:
    """`PROBE`, with the layer selected on one half of the sentences and reported on the other.

    `beyond_chance`: minus the share of random neighbours.
    """
    table = Table(TAG_NEIGHBOURS.name, objective, needs=("layer", "tag"), architecture=architecture)
    return table.reduce(_best_layer, beyond_chance=beyond_chance)


def coreference(objective: Spec) -> Reading:
    """Share of mentions from which the best head attends most to an antecedent."""
    return best_heads(heads(HEAD_COREFERENCE.name, objective, mention="all"))


def spans_and_words(new: Spec, old: Spec) -> dict[str, Reading]:
    """The readings of `spans_more_than_words` for two objectives."""
    of = {"new": new, "old": old}
    spans: dict[str, Reading] = {f"{which} spans": coreference(objective) for which, objective in of.items()}
    return spans | {f"{which} words": probe(objective) for which, objective in of.items()}


def spans_more_than_words(curves: Curves, which: str) -> list[Condition]:
    """The new objective exceeds the old one in coreference, and by more than in word tags."""
    spans, words = (curves[f"new {what}"] - curves[f"old {what}"] for what in ("spans", "words"))
    return [
        exceeds(f"{which}, coreference", spans, 0.0, "share"),
        exceeds("that gain less the one in tags of words", spans - words, 0.0, "share"),
    ]


def parameters(objective: Spec) -> Reading:
    """Parameters of the measured part."""
    return Table(MATCH.name, objective, number="measured_parameters").reduce(_exactly)


def operations(objective: Spec) -> Reading:
    """Counted floating-point operations of the training."""
    return Table(MATCH.name, objective, number="flops").reduce(_exactly)


def _best_layer(rows: SeedRows, beyond_chance: bool) -> np.ndarray:
    rows = rows.at(rows.frame["layer"] >= 1)
    layers = [own for _, own in rows.groups("layer")]
    if not layers or len({tuple(sorted(own.frame["tag"])) for own in layers}) > 1:
        raise Absent("tag_neighbours lacks a tag at some layers")
    means_RL = np.stack([own.numbers.mean(axis=1) for own in layers], axis=1)
    if beyond_chance:
        means_RL = means_RL - np.array([own.column("baseline").mean() for own in layers])
    if not np.isfinite(means_RL[0]).all():
        raise Absent("tag_neighbours holds no number at some layers")
    return largest(means_RL)


def _exactly(rows: SeedRows) -> np.ndarray:
    values = rows.column(rows.number)
    if len(values) != 1 or not np.isfinite(values).all():
        raise Absent("the table match holds no single number for a model")
    return exact(values)
