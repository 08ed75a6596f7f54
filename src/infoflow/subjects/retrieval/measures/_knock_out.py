"""Rows of `evidence_flow` for forbidden attention edges and removed tokens, with random ones as the baseline."""

# B row, T query token, S key token
# B row
# V variant, B row, T query token, S key token

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch

from infoflow.foundation import stream
from infoflow.models import AttentionCall, Model, tap, without_edges

from ._fact_reading import scores_of, variant_answers
from ._inputs import EVIDENCE_PARTS, FactInputs, TokenPart
from ._tables import group_rows

KNOCK_OUTS = ("mask→evidence", "query→evidence", "evidence→query", "mask→subject", "mask→object")
"""Knock-outs: the tokens that attend, →, the tokens that they may not attend to.

The evidence is the whole passage with the [SEP] after it. The query is everything before it, including [CLS] and [SEP];
otherwise information could bypass the knock-out through a special token.
"""


def edges(inputs: FactInputs, what: str) -> np.ndarray:
    """The edges that a knock-out forbids, bool (row, query, key); none in rows without evidence."""
    start, end = what.split("→")
    sides = _sides(inputs)
    return sides[start][:, :, None] & sides[end][:, None]


def random_edges(inputs: FactInputs, forbidden: np.ndarray, what: str, seed: int) -> np.ndarray:
    """For each row, as many random other edges between different real tokens, or all others if there are fewer."""
    real = inputs.attention_mask.astype(bool)
    drawn = np.zeros_like(forbidden)
    for row, key in enumerate(question_keys(inputs)):
        others = np.flatnonzero(real[row][:, None] & real[row] & ~forbidden[row] & ~np.eye(real.shape[1], dtype=bool))
        num = min(int(forbidden[row].sum()), len(others))
        chosen = stream("evidence-edges", seed, what, *key).choice(len(others), num, replace=False)
        drawn[row].reshape(-1)[others[chosen]] = True
    return drawn


def question_keys(inputs: FactInputs) -> list[tuple[int, int]]:
    """For each row, the fact's number and the number of the question about it."""
    seen: dict[int, int] = {}
    keys = []
    for fact in inputs.facts:
        seen[fact.number] = seen.get(fact.number, -1) + 1
        keys.append((fact.number, seen[fact.number]))
    return keys


class EdgeEdit:
    """Forbids edges in a batch that is repeated once per variant: each variant has its own edges and layers."""

    def __init__(self, stack: str, variants: Sequence[tuple[np.ndarray, frozenset[int]]]) -> None:
        """`variants`: edges, bool (row, query, key), and the layers in which they are forbidden."""
        self._stack = stack
        self._variants = [(torch.from_numpy(forbidden), layers) for forbidden, layers in variants]

    def __call__(self, call: AttentionCall) -> AttentionCall | None:
        if (call.stack, call.kind) != (self._stack, "self"):
            return None
        if not any(call.layer in layers for _, layers in self._variants):
            return None
        here = [edges if call.layer in layers else torch.zeros_like(edges) for edges, layers in self._variants]
        return without_edges(call, torch.cat(here).to(call.value.device))


def _sides(inputs: FactInputs) -> dict[str, np.ndarray]:
    real, parts = inputs.attention_mask.astype(bool), inputs.parts
    read = np.isin(parts, EVIDENCE_PARTS).any(axis=1, keepdims=True)
    passage = real & (inputs.token_type_ids == 1)
    return {
        "mask": parts == TokenPart.MASK,
        "query": real & ~passage,
        "evidence": passage & read,
        "subject": parts == TokenPart.SUBJECT,
        "object": parts == TokenPart.EVIDENCE_OBJECT,
    }


# One token of each row: the last of a part of the question or evidence, or a random word as baseline.

NOWHERE = -1
NAMED = (TokenPart.MASK, TokenPart.SUBJECT, TokenPart.EVIDENCE_SUBJECT, TokenPart.EVIDENCE_OBJECT)


def last_token(inputs: FactInputs, part: TokenPart) -> np.ndarray:
    """The position of the last token of a part, int64 (row,); −1 if a row has none."""
    there = inputs.parts == part
    last = there.shape[1] - 1 - there[:, ::-1].argmax(axis=1)
    return np.where(there.any(axis=1), last, NOWHERE)


def random_word(inputs: FactInputs, purpose: str, seed: int, *, of_passage: bool = False) -> np.ndarray:
    """The position of a random word in each row, int64 (row,); −1 if there is none.

    Special tokens, masks, the subject and its object are excluded; `purpose` and `seed` seed the draw.
    """
    left_out = [TokenPart.PAD, TokenPart.SPECIAL, *NAMED]
    there = ~np.isin(inputs.parts, left_out)
    if of_passage:
        there &= np.isin(inputs.parts, EVIDENCE_PARTS)
    found = np.full(len(inputs), NOWHERE)
    for row, key in enumerate(question_keys(inputs)):
        places = np.flatnonzero(there[row])
        if len(places):
            found[row] = stream("evidence-word", purpose, seed, *key).choice(places)
    return found


def at(places: np.ndarray, num_tokens: int) -> np.ndarray:
    """The positions as bool (row, token)."""
    return np.arange(num_tokens) == places[:, None]


# Rows of `evidence_flow` for forbidden attention edges, and for single tokens removed as keys.

ALL_LAYERS = -1
METRICS = ("p1", "nats")


@final
@dataclass(frozen=True, slots=True, eq=False)
class Forbidden:
    """Edges that are forbidden in some layers, and random edges as baseline."""

    what: str
    scope: str  # block, upward or all
    layer: int  # −1: all
    layers: frozenset[int]
    edges: np.ndarray  # bool (row, query, key)
    counted: np.ndarray  # bool (row,): questions that have such edges
    random: np.ndarray  # bool (row, query, key)


def knock_outs(inputs: FactInputs, num_layers: int, seed: int) -> list[Forbidden]:
    """Every knock-out that has edges in these rows, in each block alone and from each block upward."""
    found = []
    for what in KNOCK_OUTS:
        forbidden = edges(inputs, what)
        if forbidden.any():
            random = random_edges(inputs, forbidden, what, seed)
            counted = np.asarray(forbidden.any(axis=(1, 2)))
            for layer in range(num_layers):
                alone, upward = frozenset([layer]), frozenset(range(layer, num_layers))
                found.append(Forbidden(what, "block", layer, alone, forbidden, counted, random))
                found.append(Forbidden(what, "upward", layer, upward, forbidden, counted, random))
    return found


def removals(inputs: FactInputs, num_layers: int, seed: int) -> list[Forbidden]:
    """Knock-outs of one token as a key, in each block alone and in all; the baseline removes a random word."""
    length = inputs.input_ids.shape[1]
    places = {
        "gold object": last_token(inputs, TokenPart.EVIDENCE_OBJECT),
        "subject in the evidence": last_token(inputs, TokenPart.EVIDENCE_SUBJECT),
        "subject": last_token(inputs, TokenPart.SUBJECT),
        "another word": random_word(inputs, "removed", seed, of_passage=True),
    }
    random = _keys(random_word(inputs, "baseline", seed), length)
    found = []
    for what, removed in places.items():
        counted, forbidden = removed != NOWHERE, _keys(removed, length)
        if counted.any():
            for layer in range(num_layers):
                found.append(Forbidden(what, "block", layer, frozenset([layer]), forbidden, counted, random))
            layers = frozenset(range(num_layers))
            found.append(Forbidden(what, "all", ALL_LAYERS, layers, forbidden, counted, random))
    return found


def forbidden_rows(
    keys: dict[str, Any], model: Model, inputs: FactInputs, tried: Sequence[Forbidden], batch: int
) -> list[dict[str, Any]]:
    """The loss in P@1 and surprise, one row for each of `tried`, metric and group of facts."""
    # Equal runs are made only once: for the top block, `block` and `upward` are the same, and baselines may be shared.
    runs: dict[tuple[int, frozenset[int]], np.ndarray] = {}
    for one in tried:
        for forbidden in (one.edges, one.random):
            runs.setdefault((id(forbidden), one.layers), forbidden)
    variants = [(forbidden, layers) for (_, layers), forbidden in runs.items()]
    clean_BC, found_VBC = answers_without_edges(model, inputs, variants, batch)
    clean, found = scores_of(clean_BC, inputs), scores_of(found_VBC, inputs)
    number = {run: index for index, run in enumerate(runs)}
    rows = []
    for one in tried:
        names = {"what": one.what, "scope": one.scope, "layer": one.layer}
        for metric in METRICS:
            sign = 1 if metric == "p1" else -1  # surprise rises when accuracy falls
            lost_VB = np.where(one.counted, sign * (clean[metric] - found[metric]), np.nan)
            value = lost_VB[number[id(one.edges), one.layers]]
            baseline = lost_VB[number[id(one.random), one.layers]]
            rows += group_rows(inputs.facts, value, baseline, metric=metric, **keys, **names)
    return rows


def answers_without_edges(
    model: Model, inputs: FactInputs, variants: Sequence[tuple[np.ndarray, frozenset[int]]], batch: int = 64
) -> tuple[np.ndarray, np.ndarray]:
    """Log-probability of each choice, (row, choice), and of each variant, (variant, row, choice)."""
    stack = model.anatomy.reads.name
    changed = [{(stack, layer) for layer in layers} for _, layers in variants]

    def edits(rows: np.ndarray, some: Sequence[int]) -> AbstractContextManager[Any]:
        own = [(variants[one][0][rows], variants[one][1]) for one in some]
        return tap(model, on_attention=EdgeEdit(stack, own))

    return variant_answers(model, inputs, changed, edits, batch)


def _keys(places: np.ndarray, length: int) -> np.ndarray:
    """All edges to one token of each row, bool (row, query, key)."""
    return np.broadcast_to(at(places, length)[:, None], (len(places), length, length))
