"""The table `evidence_ablation`: answers without the heads with the highest copy scores."""

# V variant, B row

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from transformers import PreTrainedModel

from infoflow.corpus import FactWorld
from infoflow.foundation import UserError, stream
from infoflow.heads import Head, HeadEdit, HeadSet
from infoflow.models import Model, tap

from ..models import Library, RetrievalModel
from ._asked import READ_KINDS, asked_by_kind, batches, facts_of_kind, group_estimates, looked_at
from ._candidates import limit_of
from ._evidence_heads import copy_scores
from ._inputs import Document, FactInputs, fact_inputs
from ._readings import reader_of
from ._tables import EVIDENCE_ABLATION
from ._variants import scores_of, variant_answers

_METRICS = ("p1", "nats")


def evidence_ablation(
    reader: RetrievalModel | PreTrainedModel,
    world: FactWorld,
    tokenizer: object,
    *,
    kinds: Sequence[str] = READ_KINDS,
    documents: Sequence[Document] = ("gold", "none"),
    ranked_by: Sequence[str] | None = None,
    facts: int = 128,
    draws: int = 5,
    seed: int = 0,
    batch: int = 64,
    library: Library | None = None,
) -> pd.DataFrame:
    """P@1 and surprise (−log p, nats) of the right object after ablating the heads with the highest copy scores.

    The number of ablated heads is 1, 2, 4, ..., up to half of all; 0 is the intact model.

    The baseline is the mean over draws of the same number of other heads. Heads are ranked once, with the gold
    documents of the facts of all `kinds`, or of `ranked_by`. If evidence heads are distinct, ablating them lowers P@1
    with "gold" but not with "none"; with "conflict" the right object comes from memory and contradicts the document, so
    P@1 rises if these heads suppressed memory. Every number is given for all facts of a kind (`weight` −1) and for each
    exposure.

    Args:
        reader: A masked LM, or a `RetrievalModel`, which also has the document retrieved.
        world: World of the facts.
        tokenizer: The world's tokenizer.
        kinds: Kinds of facts.
        documents: Documents to use. Kinds of facts without such a document have no row.
        ranked_by: Kinds of facts whose gold documents rank the heads; default: `kinds`. If set, other kinds are
            evaluated without the same heads.
        facts: Maximum number of facts per kind.
        draws: Number of draws of random heads, for each number of heads.
        seed: Seeds the choice of facts, random documents and random heads.
        batch: Rows per forward pass.
        library: Its index replaces one built here for each kind; see `question_candidates`.

    Raises:
        UserError: The reader is not a masked LM or has fewer than two heads, no fact is left, a document is unknown, or
            there is no draw.
    """
    model = looked_at(reader_of(reader))
    if draws < 1:
        raise UserError(f"draws must be at least 1: random heads are the baseline. Got {draws}.")
    every = [fact for kind in ranked_by or kinds for fact in facts_of_kind(world, kind, facts, seed)]
    ranked = heads_by_copying(model, fact_inputs(world, tokenizer, every, "gold", limit=limit_of(reader)), batch)
    if len(ranked) < 2:
        raise UserError(f"{model.name} has {len(ranked)} head, and removing it leaves none. Use a reader with more.")
    tops = {num: frozenset(ranked[:num]) for num in _counts(len(ranked))}
    others = {num: random_heads(ranked[num:], num, draws, seed) for num in tops}
    rows = []
    for asked in asked_by_kind(reader, world, tokenizer, kinds, documents, facts, seed, library):
        for document in filter(asked.has, documents):
            rows += _rows({"document": document}, model, asked.inputs(document), tops, others, batch)
    return EVIDENCE_ABLATION.conform(pd.DataFrame(rows))


def heads_by_copying(model: Model, inputs: FactInputs, batch: int = 64) -> list[Head]:
    """Every head of the reading stack, by falling copy score; ties by attention on the object."""
    stack = model.anatomy.reads.name
    scores = {
        (stack, "self", layer, head): float(score)
        for layer, of_layer in enumerate(copy_scores(model, inputs, batch))
        for head, score in enumerate(of_layer)
    }
    return sorted(scores, key=lambda head: -scores[head])


def random_heads(heads: Sequence[Head], num: int, draws: int, seed: int) -> list[HeadSet]:
    """Draws of `num` of these heads, without replacement within a draw."""
    return [
        frozenset(
            heads[place] for place in stream("evidence-heads", seed, num, draw).choice(len(heads), num, replace=False)
        )
        for draw in range(draws)
    ]


def _counts(num_heads: int) -> list[int]:
    return [2**power for power in range(num_heads.bit_length()) if 2 * 2**power <= num_heads]


def _rows(
    keys: dict[str, Any],
    model: Model,
    inputs: FactInputs,
    tops: dict[int, HeadSet],
    others: dict[int, list[HeadSet]],
    batch: int,
) -> list[dict[str, Any]]:
    variants = [*tops.values(), *(heads for num in tops for heads in others[num])]
    clean_BC, found_VBC = ablated_answers(model, inputs, variants, batch)
    clean, found = scores_of(clean_BC, inputs), scores_of(found_VBC, inputs)
    rows, draw = [], len(tops)
    for metric in _METRICS:
        groups = group_estimates(clean[metric], inputs, clean[metric], _SCALES[metric])
        rows += [{**keys, "removed": 0, "metric": metric, **row} for row in groups]
    for place, num in enumerate(tops):
        at = slice(draw, draw := draw + len(others[num]))
        for metric in _METRICS:
            groups = group_estimates(found[metric][place], inputs, found[metric][at], _SCALES[metric])
            rows += [{**keys, "removed": num, "metric": metric, **row} for row in groups]
    return rows


_SCALES: dict[str, Any] = {"p1": "share", "nats": "positive"}


def ablated_answers(
    model: Model, inputs: FactInputs, variants: Sequence[HeadSet], batch: int = 64
) -> tuple[np.ndarray, np.ndarray]:
    """Log-probability of each choice, (row, choice), and without each set of heads, (variant, row, choice)."""
    changed = [{(stack, layer) for stack, _, layer, _ in heads} for heads in variants]
    parts = [
        variant_answers(
            model,
            part,
            changed,
            lambda some: tap(model, on_heads=HeadEdit([variants[one] for one in some]) if some else None),
            keep_heads=True,
        )
        for part in batches(inputs, batch)
    ]
    return np.concatenate([clean for clean, _ in parts]), np.concatenate([found for _, found in parts], axis=1)
