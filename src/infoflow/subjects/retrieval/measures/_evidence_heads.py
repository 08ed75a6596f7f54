"""The tables `evidence_heads` and `evidence_ablation`: which heads point at the answer, and answers without them."""

# B row, J mask of the row, H head, S key token
# V variant, B row

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from infoflow._transformers import PreTrainedModel
from infoflow.corpus import FactWorld
from infoflow.foundation import Scale, UserError, stream
from infoflow.heads import Head, HeadEdit, HeadSet
from infoflow.models import AttentionCall, Model, tap

from ..models import Library, RetrievalModel, block_mean
from ._answers import choice_log_probabilities, limit_of, reader_of
from ._fact_reading import (
    READ_KINDS,
    attention_shares,
    facts_of_kind,
    logits_of,
    looked_at,
    readings_by_kind,
    scores_of,
    variant_answers,
)
from ._inputs import EVIDENCE_PARTS, Document, FactInputs, TokenPart, fact_inputs
from ._tables import EVERY_WEIGHT, EVIDENCE_ABLATION, EVIDENCE_HEADS, fact_blocks, fact_groups, group_rows, mean_of

GROUPS = ("evidence", "question", "special", "itself", "object")
"""Groups of keys, seen from the mask.

In this order: words of the passage; words of the question and its other masks; [CLS] and [SEP]; the mask itself; the
object in the evidence, which `evidence` includes.
"""
COPY = "copy"
BY_EXPOSURE = ("evidence", "object", COPY)  # metrics that are also reported for each exposure
HeadReadings = dict[str, list[np.ndarray]]  # by metric, for each layer: (row, head)


def evidence_heads(
    reader: RetrievalModel | PreTrainedModel,
    world: FactWorld,
    tokenizer: object,
    *,
    kinds: Sequence[str] = READ_KINDS,
    documents: Sequence[Document] = ("gold",),
    facts: int = 128,
    seed: int = 0,
    batch: int = 64,
    library: Library | None = None,
) -> pd.DataFrame:
    r"""Shares of attention from the mask, and the copy score of every head.

    $$ \mathrm{copy}_h = \frac{1}{|Q|} \sum_{q \in Q} [\hat{y}_q = o_q] \cdot \frac{1}{J}
       \sum_j [\arg\max_k a^h_{jk} \in O_q] $$

    | symbol    | here                                                                   |
    |-----------|------------------------------------------------------------------------|
    | $Q$       | questions, two wordings per fact                                       |
    | $o_q$     | the object in the document: the true one, except in a conflict         |
    | \(\hat{y}_q\) | the most likely object of the relation                             |
    | $j$       | masks of the question: one for each token of the object                |
    | $O_q$     | the object's tokens in the evidence                                    |

    The baseline of every number is the same statistic with a random document. It does not answer the question, but
    words of the answer that happen to occur in it count as the object.

    Attention on evidence and object, and the copy score, are given for all facts of a kind (`weight` −1) and for each
    exposure.

    Args:
        reader: A masked LM, or a `RetrievalModel`, which also has the document "retrieved".
        world: World of the facts.
        tokenizer: The world's tokenizer.
        kinds: Kinds of facts; those without a passage have no evidence.
        documents: Documents to use; "none" has neither evidence nor object. Kinds of facts without such a document have
            no row.
        facts: Maximum number of facts per kind.
        seed: Seeds the choice of facts and random documents.
        batch: Rows per forward pass.
        library: Library whose index is used instead of building one for each kind; see `question_candidates`.

    Raises:
        UserError: The reader is not a masked LM, no fact is left, or a document is unknown.

    Source: copy score adapted from the retrieval score of [@wu2024retrieval].
    """
    model, rows = looked_at(reader_of(reader)), list[dict[str, Any]]()
    for chosen in readings_by_kind(reader, world, tokenizer, kinds, documents, facts, seed, library):
        of_random = chosen.inputs("random")
        random = head_readings(model, of_random, batch)
        for document in filter(chosen.has, documents):
            inputs = of_random if document == "random" else chosen.inputs(document)
            readings = random if document == "random" else head_readings(model, inputs, batch)
            rows += [{"document": document, **row} for row in _rows(readings, inputs, random, of_random)]
    return EVIDENCE_HEADS.conform(pd.DataFrame(rows))


def _rows(
    readings: HeadReadings, inputs: FactInputs, random: HeadReadings, of_random: FactInputs
) -> Iterator[dict[str, Any]]:
    """Rows of every group of facts, metric and head; the baseline is the group's value with random documents."""
    others = {(group.facts, group.weight): group.rows for group in fact_groups(of_random.facts)}
    blocks = fact_blocks(inputs.facts)
    for group in fact_groups(inputs.facts):
        control = others[group.facts, group.weight]
        metrics = readings if group.weight == EVERY_WEIGHT else BY_EXPOSURE
        for metric in metrics:
            scale: Scale = "positive" if metric.endswith("_relative") else "share"
            for layer, values in enumerate(readings[metric]):
                for head in range(values.shape[1]):
                    baseline = mean_of(random[metric][layer][control, head])
                    names = {"facts": group.facts, "weight": group.weight, "layer": layer, "head": head}
                    found = block_mean(values[group.rows, head], blocks[group.rows], baseline, scale)
                    yield {**names, "metric": metric, **found}


def copy_scores(model: Model, inputs: FactInputs, batch: int = 64) -> list[np.ndarray]:
    """The copy score of each head, (head,) for each layer; ties are broken by attention on the object."""
    readings = head_readings(model, inputs, batch)
    # Copy scores differ by at least half a question, so adding this much of the attention (at most 1) only breaks ties.
    step = 1e-3 / (2 * len(inputs))
    return [
        copied.mean(axis=0) + step * looked.mean(axis=0)
        for copied, looked in zip(readings[COPY], readings["object"], strict=True)
    ]


def head_readings(model: Model, inputs: FactInputs, batch: int = 64) -> HeadReadings:
    """Every metric of every head and question, averaged over the question's masks."""
    found: dict[str, list[list[np.ndarray]]] = {}
    for part in inputs.batches(batch):
        for metric, layers in _batch_readings(model, part).items():
            for layer, values in enumerate(layers):
                of_metric = found.setdefault(metric, [[] for _ in layers])
                of_metric[layer].append(values)
    return {metric: [np.concatenate(parts) for parts in layers] for metric, layers in found.items()}


def mask_attention(model: Model, inputs: FactInputs) -> tuple[Tensor, list[np.ndarray]]:
    """Logits (row, token, vocabulary), and for each layer the attention from the masks, float64 (row, mask, head,
    token).
    """
    stack, found = model.anatomy.reads.name, list[np.ndarray]()
    masks = torch.from_numpy(inputs.masks).clamp(min=0).to(model.device)
    rows = torch.arange(len(inputs), device=model.device)[:, None]

    def keep(call: AttentionCall) -> None:
        if (call.stack, call.kind) == (stack, "self"):
            found.append(call.weights[rows, :, masks].double().cpu().numpy())

    with torch.no_grad(), tap(model, on_attention=keep):
        logits = logits_of(model, inputs)
    return logits, found


def object_tokens(inputs: FactInputs) -> np.ndarray:
    """The object's tokens in the evidence, bool (row, token); without an answering sentence, any word of the answer."""
    answers = inputs.candidates[np.arange(len(inputs)), inputs.answers]
    same = (inputs.input_ids[:, :, None] == answers[:, None]).any(axis=2) & np.isin(inputs.parts, EVIDENCE_PARTS)
    said = inputs.parts == TokenPart.EVIDENCE_OBJECT
    return np.where(said.any(axis=1, keepdims=True), said, same)


def _batch_readings(model: Model, inputs: FactInputs) -> HeadReadings:
    logits, attention = mask_attention(model, inputs)
    stated = inputs.others if inputs.document == "conflict" else inputs.answers  # by the document
    right = choice_log_probabilities(logits, inputs).argmax(axis=1) == stated
    there_BJ = inputs.masks >= 0
    real_BS = inputs.attention_mask.astype(bool)
    keys = _keys(inputs)
    found: HeadReadings = {}
    for weights_BJHS in attention:
        for group, chosen_BJS in keys.items():
            shares = attention_shares(weights_BJHS, chosen_BJS[:, :, None], real_BS[:, None, None])
            found.setdefault(group, []).append(over_masks(shares.share, there_BJ))
            found.setdefault(f"{group}_relative", []).append(over_masks(shares.relative, there_BJ))
        known_BJHS = np.where(real_BS[:, None, None], weights_BJHS, -1.0)
        best_BJHS = known_BJHS == known_BJHS.max(axis=3, keepdims=True)
        pointed_BJH = (best_BJHS & keys["object"][:, :, None]).sum(axis=3) / best_BJHS.sum(axis=3)
        found.setdefault(COPY, []).append(over_masks(pointed_BJH * right[:, None, None], there_BJ))
    return found


def _keys(inputs: FactInputs) -> dict[str, np.ndarray]:
    """The keys of each group, bool (row, mask, token)."""
    parts = inputs.parts[:, None]
    itself = np.arange(parts.shape[2]) == inputs.masks[:, :, None]
    queries = np.isin(parts, [TokenPart.MASK, TokenPart.SUBJECT, TokenPart.RELATION, TokenPart.QUESTION])
    groups = {
        "evidence": np.isin(parts, EVIDENCE_PARTS),
        "question": queries & ~itself,
        "special": parts == TokenPart.SPECIAL,
        "itself": itself,
        "object": object_tokens(inputs)[:, None],
    }
    return {group: np.broadcast_to(groups[group], itself.shape) for group in GROUPS}


def over_masks(values_BJH: np.ndarray, there_BJ: np.ndarray) -> np.ndarray:
    """The mean over existing masks, (row, head); NaN stays."""
    there = there_BJ[:, :, None]
    return np.where(there, values_BJH, 0.0).sum(axis=1) / there.sum(axis=1)


# The table `evidence_ablation`: answers without the heads with the highest copy scores.

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

    The baseline is the mean over draws of as many other heads. Heads are ranked once, with the gold documents of all
    `kinds`, or of `ranked_by`. If heads that carry evidence do not also recall from memory, ablating them lowers P@1
    with "gold" but not with "none"; with "conflict" the right object comes from memory and contradicts the document, so
    P@1 rises if these heads suppressed memory. Every number is given for all facts of a kind (`weight` −1) and for each
    exposure.

    Args:
        reader: A masked LM, or a `RetrievalModel`, which also has the document "retrieved".
        world: World of the facts.
        tokenizer: The world's tokenizer.
        kinds: Kinds of facts.
        documents: Documents to use. Kinds of facts without such a document have no row.
        ranked_by: Kinds of facts whose gold documents rank the heads; default: `kinds`. Set it to ablate the same heads
            for other `kinds`.
        facts: Maximum number of facts per kind.
        draws: Number of draws of random heads, for each number of heads.
        seed: Seeds the choice of facts, random documents and random heads.
        batch: Rows per forward pass.
        library: Library whose index is used instead of building one for each kind; see `question_candidates`.

    Raises:
        UserError: The reader is not a masked LM or has fewer than two heads, no fact is left, a document is unknown, or
            `draws` is below 1.
    """
    model = looked_at(reader_of(reader))
    if draws < 1:
        raise UserError(f"draws must be at least 1: random heads are the baseline. Got {draws}.")
    every = [fact for kind in ranked_by or kinds for fact in facts_of_kind(world, kind, facts, seed)]
    ranked = heads_by_copying(model, fact_inputs(world, tokenizer, every, "gold", limit=limit_of(reader)), batch)
    if len(ranked) < 2:
        raise UserError(f"{model.name} has {len(ranked)} head, and removing it leaves none. Use a reader with more.")
    counts = [2**power for power in range(len(ranked).bit_length()) if 2 * 2**power <= len(ranked)]
    tops = {num: frozenset(ranked[:num]) for num in counts}
    others = {num: random_heads(ranked[num:], num, draws, seed) for num in tops}
    rows = []
    for readings in readings_by_kind(reader, world, tokenizer, kinds, documents, facts, seed, library):
        for document in filter(readings.has, documents):
            rows += _rows_without_heads({"document": document}, model, readings.inputs(document), tops, others, batch)
    return EVIDENCE_ABLATION.conform(pd.DataFrame(rows))


def heads_by_copying(model: Model, inputs: FactInputs, batch: int = 64) -> list[Head]:
    """Every head of the reading stack, by falling copy score; ties are broken by attention on the object."""
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


def _rows_without_heads(
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
        named = {**keys, "removed": 0, "metric": metric}
        rows += group_rows(inputs.facts, clean[metric], clean[metric], _SCALES[metric], **named)
    for index, num in enumerate(tops):
        at = slice(draw, draw := draw + len(others[num]))
        for metric in _METRICS:
            named = {**keys, "removed": num, "metric": metric}
            rows += group_rows(inputs.facts, found[metric][index], found[metric][at], _SCALES[metric], **named)
    return rows


_SCALES: dict[str, Any] = {"p1": "share", "nats": "positive"}


def ablated_answers(
    model: Model, inputs: FactInputs, variants: Sequence[HeadSet], batch: int = 64
) -> tuple[np.ndarray, np.ndarray]:
    """Log-probability of each choice with all heads, (row, choice), and without each set, (variant, row, choice)."""
    changed = [{(stack, layer) for stack, _, layer, _ in heads} for heads in variants]

    def edits(rows: np.ndarray, some: Sequence[int]) -> AbstractContextManager[Any]:
        return tap(model, on_heads=HeadEdit([variants[one] for one in some]) if some else None)

    return variant_answers(model, inputs, changed, edits, batch, keep_heads=True)
