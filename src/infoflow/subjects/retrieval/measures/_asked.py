"""Shared inputs of all measures of reading: facts of each kind, a model with its anatomy, and its answers."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from infoflow.corpus import Fact, FactWorld
from infoflow.foundation import NUM_BLOCKS, Scale, UserError, stream
from infoflow.models import Model, accepts, load_model
from infoflow.results import ratio_estimate

from ..models import Library
from ._blocks import fact_blocks
from ._groups import fact_groups
from ._inputs import FactInputs
from ._readings import FactReadings

READ_KINDS = ("trained", "held out")
"""Facts that a trained reader can and cannot store; both occur in a passage."""


def looked_at(reader: PreTrainedModel) -> Model:
    """The reader with its anatomy, in evaluation mode.

    Raises:
        UserError: Its answers do not come from one stack of blocks with attention.
    """
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
    """At most `limit` facts of a kind, drawn without replacement, in the world's order.

    Raises:
        UserError: The limit is below 1, or the world has none of the kind.
    """
    if limit < 1:
        raise UserError(f"facts must be at least 1. Got {limit}.\nSet the number of facts to ask about.")
    facts = world.of_kind(kind)
    if not facts:
        raise UserError(f'The world has no facts of the kind "{kind}". Choose another kind.')
    chosen = stream("evidence-facts", seed, kind).permutation(len(facts))[:limit]
    return [facts[place] for place in sorted(chosen)]


def asked_by_kind(
    model: Any,
    world: FactWorld,
    tokenizer: object,
    kinds: Sequence[str],
    documents: Sequence[str],
    facts: int,
    seed: int = 0,
    library: Library | None = None,
) -> list[FactReadings]:
    """At most `limit` facts of each kind, with a model's readings; all from `library` if it is given.

    Raises:
        UserError: The limit is below 1, the world has no fact of a kind, or no fact has one of the documents.
    """
    chosen = [facts_of_kind(world, kind, facts, seed) for kind in kinds]
    options: Any = {"model": model, "world": world, "tokenizer": tokenizer, "seed": seed, "passage_library": library}
    asked = [FactReadings(facts=one, **options) for one in chosen]
    for one in asked:
        one.require(documents)
    if not any(one.has(document) for one in asked for document in documents):
        raise UserError(
            f"No fact of the kinds {', '.join(kinds) or '(none)'} has a document of the kinds "
            f"{', '.join(documents) or '(none)'}. Choose other facts or documents."
        )
    return asked


def logits_of(model: Model, inputs: FactInputs, times: int = 1) -> Tensor:
    """Logits (row, token, vocabulary) of the rows, with all rows repeated `times` times."""
    named = {name: value for name, value in inputs.tensors(model.device).items() if accepts(model.module, name)}
    if getattr(model.module.config, "type_vocab_size", 0) < 2:  # RoBERTa accepts segments but has only one
        named.pop("token_type_ids", None)
    return model.module(**{name: value.repeat(times, 1) for name, value in named.items()}).logits


def batches(inputs: FactInputs, size: int) -> list[FactInputs]:
    """The rows in parts of at most this many."""
    places = np.arange(len(inputs))
    return [inputs.take(places[start : start + size]) for start in range(0, len(inputs), size)]


def mean_estimate(values: np.ndarray, inputs: FactInputs, baseline: float, scale: Scale = "any") -> dict[str, Any]:
    """The columns of one row for a mean over questions (row,); NaN where a question does not count."""
    return _estimate_of(values, fact_blocks(inputs.facts), baseline, scale)


def group_estimates(
    values: np.ndarray, inputs: FactInputs, baseline: np.ndarray, scale: Scale = "any"
) -> Iterator[dict[str, Any]]:
    """Rows `facts, weight` and the estimate of every group of facts with a question that counts.

    Args:
        values: (row,); NaN where a question does not count.
        inputs: Input rows.
        baseline: (..., row), whose mean is the control; NaN likewise.
        scale: Range of a mean.
    """
    blocks = fact_blocks(inputs.facts)
    for group in fact_groups(inputs.facts):
        own = values[group.rows]
        if np.isfinite(own).any():
            control = mean_of(np.take(baseline, group.rows, axis=-1))
            names = {"facts": group.facts, "weight": group.weight}
            yield {**names, **_estimate_of(own, blocks[group.rows], control, scale)}


def _estimate_of(values: np.ndarray, blocks: np.ndarray, baseline: float, scale: Scale) -> dict[str, Any]:
    counted = np.isfinite(values)
    sums = np.bincount(blocks, np.where(counted, values, 0.0), NUM_BLOCKS)
    return ratio_estimate(sums, np.bincount(blocks, counted, NUM_BLOCKS), baseline, scale)


def mean_of(values: np.ndarray) -> float:
    """The mean without NaN; NaN if nothing is left."""
    counted = values[np.isfinite(values)]
    return float(counted.mean()) if len(counted) else float("nan")
