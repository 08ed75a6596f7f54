"""The table `evidence_ablation`: answers without the heads that copy most."""

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
from infoflow.retrieval import Library, RetrievalModel

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
    """P@1 and surprise (−log p, nats) of the right object after the 1, 2, 4, ... heads of highest copy score put out
    nothing, up to half of all; 0: the model as it is.

    The baseline is the mean over draws of as many heads among the others. Heads are ranked once, with the gold
    documents of the facts of all `kinds`, or of `ranked_by`. Evidence heads of their own kind lose P@1 with "gold" and
    keep it with "none"; with "conflict" the right object is what memory says and the document does not, so that P@1
    rises where they held memory down. Every number is of all facts of a kind (`weight` −1) and of each exposure.

    Args:
        reader: A masked LM, or a `RetrievalModel`, which also has the document retrieved.
        world: Whose facts are asked for.
        tokenizer: The world's.
        kinds: Of facts.
        documents: Which ones. A kind of fact that has no such document has no row.
        ranked_by: Kinds of facts whose gold documents rank the heads; by default `kinds`. With these named, other kinds
            are asked without the same heads.
        facts: At most so many of a kind.
        draws: Of random heads, for each number of them.
        seed: Of the choice of facts, of random documents and of random heads.
        batch: Rows of a forward pass.
        library: Its index is searched instead of one that is built here for each kind; see `question_candidates`.

    Raises:
        UserError: The reader is no masked LM or has fewer than two heads, no fact is left, a document is unknown, or
            there is no draw.
    """
    model = looked_at(reader_of(reader))
    if draws < 1:
        raise UserError(f"draws must be at least 1: random heads are the baseline. Got {draws}.")
    every = [fact for kind in ranked_by or kinds for fact in facts_of_kind(world, kind, facts, seed)]
    ranked = heads_by_copying(model, fact_inputs(world, tokenizer, every, "gold", limit=limit_of(reader)), batch)
    if len(ranked) < 2:
        raise UserError(f"{model.name} has {len(ranked)} head, and removing it leaves none. Give a reader with more.")
    tops = {num: frozenset(ranked[:num]) for num in _counts(len(ranked))}
    others = {num: random_heads(ranked[num:], num, draws, seed) for num in tops}
    rows = []
    for asked in asked_by_kind(reader, world, tokenizer, kinds, documents, facts, seed, library):
        for document in filter(asked.has, documents):
            rows += _rows({"document": document}, model, asked.inputs(document), tops, others, batch)
    return EVIDENCE_ABLATION.conform(pd.DataFrame(rows))


def heads_by_copying(model: Model, inputs: FactInputs, batch: int = 64) -> list[Head]:
    """Every head of the stack that reads, the one that copies most first; ties by attention on the object."""
    stack = model.anatomy.reads.name
    scores = {
        (stack, "self", layer, head): float(score)
        for layer, of_layer in enumerate(copy_scores(model, inputs, batch))
        for head, score in enumerate(of_layer)
    }
    return sorted(scores, key=lambda head: -scores[head])


def random_heads(heads: Sequence[Head], num: int, draws: int, seed: int) -> list[HeadSet]:
    """Draws of so many of these heads, without replacement within a draw."""
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
