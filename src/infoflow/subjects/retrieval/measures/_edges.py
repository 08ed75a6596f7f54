"""Attention edges between parts of question and document, and equal numbers of random ones."""

# B row, T query token, S key token

from collections.abc import Sequence

import numpy as np
import torch

from infoflow.foundation import stream
from infoflow.models import AttentionCall, without_edges

from ._inputs import EVIDENCE_PARTS, FactInputs, TokenPart

KNOCK_OUTS = ("mask→evidence", "query→evidence", "evidence→query", "mask→subject", "mask→object")
"""From querying to attended tokens.

The evidence is the whole passage with the [SEP] behind it, and the query everything before, with its [CLS] and [SEP];
otherwise a special token would pass on what is forbidden.
"""


def edges(inputs: FactInputs, what: str) -> np.ndarray:
    """The edges that a knock-out forbids, bool (row, query, key); none in rows without evidence."""
    start, end = what.split("→")
    sides = _sides(inputs)
    return sides[start][:, :, None] & sides[end][:, None]


def random_edges(inputs: FactInputs, forbidden: np.ndarray, what: str, seed: int) -> np.ndarray:
    """The same number of other edges for each row, between different real tokens; all of them if there are fewer.

    Args:
        inputs: Input rows.
        forbidden: The edges that these are a baseline for, bool (row, query, key).
        what: Their name, part of the key of the draw.
        seed: Seeds the draws: one for each question.
    """
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
    """Forbids edges: for each of V variants of the batch its own edges, in its own layers.

    The model runs on the batch repeated V times (`x.repeat(V, 1)`).
    """

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
    """The tokens of each side of an edge, bool (row, token)."""
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
