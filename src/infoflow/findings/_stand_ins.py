"""What stands in for end tasks in claims about objectives, until models are fine-tuned on any; and what a model cost.

A probe without parameters: of the occurrences of a token, do the nearest carry the same tag (syntactic category, part
of speech, relation)? For tasks on spans and on relations across a sentence: the best head's share of mentions whose
attention goes to an antecedent. Both look at the states and heads that objectives formed, on unseen text that is the
same for all.
"""

import numpy as np

from infoflow.results import Spec

from ._condition import Condition, exceeds
from ._finding import Curves
from ._head_numbers import best_heads, heads
from ._model_group import Absent
from ._table import Reading, SeedRows, Table, exact

PROBE = "share of nearest occurrences of a token with its tag, mean over tags, best layer"
STANDS_IN = f"End tasks are not trained: a probe stands in ({PROBE})."


def probe(objective: Spec, architecture: str = "", *, beyond_chance: bool = False) -> Reading:
    """`PROBE`; the layer is chosen by the estimate of each seed, and kept in its replicates. `beyond_chance`: less what
    random neighbours share."""
    table = Table("tag_neighbours", objective, needs=("layer", "tag"), architecture=architecture)
    return table.reduce(_best_layer, beyond_chance=beyond_chance)


def coreference(objective: Spec) -> Reading:
    """Share of mentions from which the best head attends most to an antecedent."""
    return best_heads(heads("head_coreference", objective, mention="all"))


def spans_and_words(new: Spec, old: Spec) -> dict[str, Reading]:
    """What `spans_more_than_words` reads of two objectives."""
    of = {"new": new, "old": old}
    spans: dict[str, Reading] = {f"{which} spans": coreference(objective) for which, objective in of.items()}
    return spans | {f"{which} words": probe(objective) for which, objective in of.items()}


def spans_more_than_words(curves: Curves, which: str) -> list[Condition]:
    """The new objective lies above the old one in coreference, and by more than in the tags of words."""
    spans, words = (curves[f"new {what}"] - curves[f"old {what}"] for what in ("spans", "words"))
    return [
        exceeds(f"{which}, coreference", spans, 0.0, "share"),
        exceeds("that gain less the one in tags of words", spans - words, 0.0, "share"),
    ]


def parameters(objective: Spec) -> Reading:
    """Of the part that is measured."""
    return Table("match", objective, number="measured_parameters").reduce(_exactly)


def operations(objective: Spec) -> Reading:
    """Floating-point operations of the training, counted."""
    return Table("match", objective, number="flops").reduce(_exactly)


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
    return means_RL[:, [means_RL[0].argmax()]]


def _exactly(rows: SeedRows) -> np.ndarray:
    values = rows.column(rows.number)
    if len(values) != 1 or not np.isfinite(values).all():
        raise Absent("the table match holds no single number for a model")
    return exact(values)
