"""Heads that point along syntactic relations."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from infoflow.foundation import UserError, as_tensor

from ._rows import Array, Attention, AttentionRows, check_attention, largest

DIRECTIONS = ("dependent→head", "head→dependent")
MULTIPLES = ("per_edge", "any")


def relation_scores(
    attention: Attention,
    valid: Array,
    governors: Array,
    relations: Sequence[Sequence[str]],
    multi: str = "per_edge",
) -> pd.DataFrame:
    r"""How often a head's largest weight lies on the other end of a dependency edge.

    For a relation r with edges $E_r$ (dependent d, head g), in the direction dependent → head:

    $$ \mathrm{acc}_r = \frac{1}{|E_r|} \sum_{(d, g) \in E_r} \big[ \arg\max_{j \in K} a_{dj} = g \big] $$

    and with d and g exchanged for head → dependent. K are the valid tokens; edges with an invalid end and roots are
    left out. The baseline always answers with the relation's most frequent offset. A head is called syntactic if
    it exceeds the baseline by ten percentage points [@voita2019heads].

    Args:
        attention: (layer, batch, head, query, key) weights after softmax, without dropout; or a list of layers.
        valid: (batch, token) bool; False: padding or an excluded token, as key and as query.
        governors: (batch, token) index of each token's head; −1 for the root.
        relations: For each sentence the label of each token's edge to its head; padding may be missing.
        multi: A head with several dependents of r has one edge for each, of which one can be hit (`"per_edge"`);
            `"any"` counts the head once, as hit if any is.

    Returns:
        Columns layer, head, relation, direction, accuracy, baseline, count.

    Raises:
        UserError: A shape is wrong, a governor lies outside the sentence, or an edge has no label.

    Source: [@voita2019heads].
    """
    weights, mask = check_attention(attention, valid)
    if multi not in MULTIPLES:
        raise UserError(f'multi must be "per_edge" or "any". Got {multi}.')
    sentence, dependent, governor, label = _edges(mask, as_tensor(governors), relations)
    rows = AttentionRows.of_tokens(mask)
    chosen = torch.stack([largest(layer, rows)[1] for layer in weights]).numpy()  # layer, sentence, head, query
    frames = []
    for relation in sorted(set(label)):
        of = label == relation
        for direction, (start, goal) in zip(
            DIRECTIONS, ((dependent[of], governor[of]), (governor[of], dependent[of])), strict=True
        ):
            hits = chosen[:, sentence[of], :, start] == goal[:, None, None]  # edge, layer, head
            groups = np.arange(len(start)) if multi == "per_edge" else _group(sentence[of], start)
            frames.append(_frame(relation, direction, _any(hits, groups), _any(_baseline(start, goal), groups)))
    columns = ["layer", "head", "relation", "direction", "accuracy", "baseline", "count"]
    return pd.concat(frames, ignore_index=True)[columns] if frames else pd.DataFrame(columns=columns)


def _edges(
    valid: Bool[Tensor, "sentence token"], governors: Tensor, relations: Sequence[Sequence[str]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Sentence, dependent, governor and label of every edge between valid tokens."""
    if governors.shape != valid.shape or len(relations) != len(valid):
        raise UserError(
            f"governors and relations must give each token of {tuple(valid.shape)} its head and label. "
            f"Got governors of shape {tuple(governors.shape)} and {len(relations)} lists of relations."
        )
    mask = valid.numpy()
    heads = governors.numpy()
    sentence, dependent = np.nonzero(mask & (heads >= 0))
    governor = heads[sentence, dependent]
    if governor.size and governor.max() >= valid.shape[1]:
        raise UserError(f"governors must lie in −1..{valid.shape[1] - 1}, token indices. Got {governor.max()}.")
    both = mask[sentence, governor]
    sentence, dependent, governor = sentence[both], dependent[both], governor[both]
    unlabelled = [(s, d) for s, d in zip(sentence, dependent, strict=True) if d >= len(relations[s])]
    if unlabelled:
        s, d = unlabelled[0]
        raise UserError(f"relations must label every token with a head. Sentence {s} has no label for token {d}.")
    label = np.array([relations[s][d] for s, d in zip(sentence, dependent, strict=True)], dtype=object)
    return sentence, dependent, governor, label


def _group(sentence: Int[np.ndarray, " edge"], start: Int[np.ndarray, " edge"]) -> Int[np.ndarray, " edge"]:
    """Edges that leave the same token share a number."""
    return np.unique(np.stack([sentence, start]), axis=1, return_inverse=True)[1].ravel()


def _any(hits: Bool[np.ndarray, "edge *rest"], groups: Int[np.ndarray, " edge"]) -> Bool[np.ndarray, "group *rest"]:
    """Whether any edge of each group is hit."""
    found = np.zeros((groups.max() + 1, *hits.shape[1:]), dtype=bool)
    np.logical_or.at(found, groups, hits)
    return found


def _baseline(start: Int[np.ndarray, " edge"], goal: Int[np.ndarray, " edge"]) -> Bool[np.ndarray, " edge"]:
    """Edges that the most frequent offset hits; of equally frequent ones the lowest."""
    offsets, counts = np.unique(goal - start, return_counts=True)
    return goal - start == offsets[counts.argmax()]


def _frame(
    relation: str, direction: str, hits: Bool[np.ndarray, "group layer head"], baseline: Bool[np.ndarray, " group"]
) -> pd.DataFrame:
    layer, head = np.indices(hits.shape[1:])
    return pd.DataFrame(
        {
            "layer": layer.ravel(),
            "head": head.ravel(),
            "relation": relation,
            "direction": direction,
            "accuracy": hits.mean(0).ravel(),
            "baseline": baseline.mean(),
            "count": len(hits),
        }
    )
