"""Parts shared by all measures of reading: facts, the model, its answers under edits, its attention on some tokens."""

# V variant, B row

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow._transformers import PreTrainedModel
from infoflow.corpus import Fact, FactWorld
from infoflow.foundation import UserError, stream
from infoflow.heads import by_first_block
from infoflow.models import FastLinear, Model, accepts, load_model, recorded_blocks, skipped_blocks

from ..models import Library
from ._answers import FactReadings, choice_log_probabilities
from ._inputs import FactInputs

READ_KINDS = ("trained", "held out")  # facts that training can store, and facts that it cannot; both occur in a passage


def looked_at(reader: PreTrainedModel) -> Model:
    """The reader as a `Model`, in evaluation mode; a `UserError` if it is not a masked LM with a single stack."""
    model = load_model(reader)
    reason = model.anatomy.lacks()
    if len(model.anatomy.stacks) > 1 or model.task == "encoder":
        reason = "it is not a masked LM with a single stack"
    if reason is not None:
        raise UserError(
            f"Evidence cannot be followed in {model.name}: {reason}. Use the reader of a retrieval variant."
        )
    return model


def facts_of_kind(world: FactWorld, kind: Any, limit: int, seed: int = 0) -> list[Fact]:
    """At most `limit` facts of a kind, drawn without replacement, in the world's order."""
    if limit < 1:
        raise UserError(f"facts must be at least 1. Got {limit}.\nSet the number of facts to ask about.")
    facts = world.of_kind(kind)
    if not facts:
        raise UserError(f'The world has no facts of the kind "{kind}". Choose another kind.')
    chosen = stream("evidence-facts", seed, kind).permutation(len(facts))[:limit]
    return [facts[place] for place in sorted(chosen)]


def readings_by_kind(
    model: Any,
    world: FactWorld,
    tokenizer: object,
    kinds: Sequence[str],
    documents: Sequence[str],
    facts: int,
    seed: int = 0,
    library: Library | None = None,
) -> list[FactReadings]:
    """At most `facts` facts of each kind, as the model reads them, with the passages of `library` if given."""
    chosen = [facts_of_kind(world, kind, facts, seed) for kind in kinds]
    options: Any = {"model": model, "world": world, "tokenizer": tokenizer, "seed": seed, "passage_library": library}
    readings = [FactReadings(facts=one, **options) for one in chosen]
    for one in readings:
        one.require(documents)
    if not any(one.has(document) for one in readings for document in documents):
        raise UserError(
            f"No fact of the kinds {', '.join(kinds) or '(none)'} has a document of the kinds "
            f"{', '.join(documents) or '(none)'}. Choose other facts or documents."
        )
    return readings


def logits_of(model: Model, inputs: FactInputs, times: int = 1) -> Tensor:
    """Logits (row, token, vocabulary) of the rows, with all rows repeated `times` times."""
    named = {name: value for name, value in inputs.tensors(model.device).items() if accepts(model.module, name)}
    if getattr(model.module.config, "type_vocab_size", 0) < 2:  # RoBERTa accepts segments but has only one
        named.pop("token_type_ids", None)
    return model.module(**{name: value.repeat(times, 1) for name, value in named.items()}).logits


# Answers of a model under several edits of its forward pass; the blocks below an edit run once.

Edits = Callable[[np.ndarray, Sequence[int]], AbstractContextManager[Any]]
"""A context that applies the edits of some variants to some rows; each repetition of the rows gets one variant."""
_TOKENS = 16_384  # maximum, over all variants that run together


def variant_answers(
    model: Model,
    inputs: FactInputs,
    changed: Sequence[Collection[tuple[str, int]]],
    edits: Edits,
    batch: int,
    *,
    keep_heads: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities of the choices, in nats: without edits, (row, choice), and for each variant, (variant, row,
    choice).

    `changed` are the blocks that each variant changes; a variant that changes no block has the unedited answers.
    `keep_heads` says whether the edits begin at an attention's output projection or above.
    """
    places = np.arange(len(inputs))
    parts = [
        _batch_answers(model, inputs.take(rows), changed, partial(edits, rows), keep_heads)
        for rows in (places[start : start + batch] for start in range(0, len(inputs), batch))
    ]
    return np.concatenate([clean for clean, _ in parts]), np.concatenate([found for _, found in parts], axis=1)


def _batch_answers(
    model: Model,
    inputs: FactInputs,
    changed: Sequence[Collection[tuple[str, int]]],
    edits: Callable[[Sequence[int]], AbstractContextManager[Any]],
    keep_heads: bool,
) -> tuple[np.ndarray, np.ndarray]:
    together = max(1, _TOKENS // inputs.input_ids.size)
    with torch.no_grad(), FastLinear():
        with recorded_blocks(model) as recorded, edits(()):
            clean_BC = choice_log_probabilities(logits_of(model, inputs), inputs)
        found_VBC = np.repeat(clean_BC[None], len(changed), axis=0)
        for (stack, layer), members in by_first_block(model, changed).items():
            for start in range(0, len(members), together):
                some = members[start : start + together]
                skipped = skipped_blocks(model, recorded, stack, layer, len(some), keep_heads=keep_heads)
                with skipped, edits(some):
                    logits = logits_of(model, inputs, len(some))
                repeated = inputs.take(np.tile(np.arange(len(inputs)), len(some)))
                found_VBC[some] = choice_log_probabilities(logits, repeated).reshape(len(some), *clean_BC.shape)
    return clean_BC, found_VBC


def scores_of(logs: np.ndarray, inputs: FactInputs) -> dict[str, np.ndarray]:
    """Metrics (..., row) of log-probabilities (..., row, choice): p1 (whether the right object is the likeliest), nats
    (its −log p) and its probability.
    """
    right = np.take_along_axis(logs, np.broadcast_to(inputs.answers[:, None], (*logs.shape[:-1], 1)), axis=-1)[..., 0]
    first = (logs.argmax(axis=-1) == inputs.answers).astype(np.float64)
    return {"p1": first, "nats": -right, "probability": np.exp(right)}


# The attention on some tokens, absolute and relative to their share of all tokens.


class AttentionShares(NamedTuple):
    """Attention on some tokens, for each distribution over tokens."""

    share: np.ndarray  # attention on the tokens, 0 to 1
    relative: np.ndarray
    """The share divided by the tokens' share of all real tokens: 1 for even attention; NaN if no tokens are chosen."""


def attention_shares(
    weights: Float[np.ndarray, "..."], chosen: Bool[np.ndarray, "..."], real: Bool[np.ndarray, "..."] | None = None
) -> AttentionShares:
    r"""Attention on the chosen tokens, absolute and relative to their share of the tokens.

    $$ s = \sum_{k \in C} a_k, \qquad r = s \cdot \frac{n}{|C|} $$

    with attention a (`weights`, rows sum to 1), chosen tokens C and n `real` tokens (default: all); shapes (...,
    token).

    >>> weights = np.array([[0.1, 0.2, 0.05, 0.4, 0.2, 0.05], [0.3, 0.1, 0.1, 0.1, 0.1, 0.3]])
    >>> shares = attention_shares(weights, np.array([[0, 0, 0, 1, 1, 0]], dtype=bool))
    >>> shares.share.round(9).tolist(), shares.relative.round(9).tolist()
    ([0.6, 0.2], [1.8, 0.6])
    """
    real = np.ones_like(chosen) if real is None else real
    share = np.where(chosen, weights, 0.0).sum(axis=-1)
    num, among = np.broadcast_arrays(real.sum(axis=-1), (chosen & real).sum(axis=-1), share)[:2]
    relative = np.full(share.shape, np.nan)
    np.divide(share * num, among, out=relative, where=among > 0)
    return AttentionShares(share, relative)
