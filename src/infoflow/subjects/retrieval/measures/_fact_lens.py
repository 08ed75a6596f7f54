"""A tuned lens for questions: trained on other facts with every document, and on sentences of the language."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from infoflow.corpus import FactWorld, Vocabulary
from infoflow.foundation import UserError, stream
from infoflow.models import load_model, readout
from infoflow.representations import LensTraining, TunedLens, fit_tuned_lens

from ._answers import choice_log_probabilities_at_masks
from ._candidates import limit_of
from ._fact_states import half_of_entities, states_at, states_of
from ._groups import sampled_facts
from ._inputs import FactInputs
from ._readings import FactReadings

_FACTS = 25  # per kind and exposure, with each document
_SENTENCES = 600  # about a quarter of the lens's training data, as in the model's training


def fact_lens(
    reader: PreTrainedModel,
    world: FactWorld,
    tokenizer: Any,
    *,
    training: LensTraining | None = None,
    seed: int = 0,
) -> TunedLens:
    """A tuned lens at masks, for `knowledge_lens` and `knowledge_conflict`.

    It is trained on questions about half of the entities with every document, and on sentences of the language with one
    random word masked: never on a fact that it is measured on, and only towards the model's own answers.

    Args:
        reader: A BERT with the head of a masked LM, in evaluation mode.
        world: World of the facts.
        tokenizer: The world's tokenizer.
        training: Steps and optimiser; default: 200 steps of 64 masks.
        seed: Seeds the order, random documents and masked words.

    Raises:
        UserError: The world has too few entities.

    Source: [@belrose2023].
    """
    training = training or LensTraining()
    half = half_of_entities(world)
    facts = sampled_facts(world, _FACTS, [fact for fact in world.facts if fact.entity in half])
    asked = FactReadings(model=reader, world=world, tokenizer=tokenizer, facts=facts, seed=seed)
    parts = [_mask_states(reader, asked.inputs(one)) for one in asked.available if asked.has(one)]
    if sentences := world.language_sentences(_SENTENCES):
        parts.append(states_of(reader, *_masked(sentences, tokenizer, limit_of(reader), seed))[:, :, 0])
    states = torch.cat(parts, dim=1).to(reader.device)
    read = readout(load_model(reader))
    return fit_tuned_lens(read, _batches(states, training, seed), training)


def lens_answers(
    reader: PreTrainedModel, states: Tensor, inputs: FactInputs, lens: TunedLens | None = None
) -> np.ndarray:
    """Log-probabilities over choices from each state at the masks, (state, row, choice).

    Args:
        reader: A BERT with the head of a masked LM.
        states: (state, row, target, width), at `inputs.masks`.
        inputs: Input rows.
        lens: A tuned lens; default: states are read as they are.
    """
    head, found = reader.get_submodule("cls"), []
    with torch.no_grad():
        for layer, of_layer in enumerate(states):
            rows = of_layer.to(reader.device)
            logits = head(rows if lens is None else lens(rows, layer))
            found.append(choice_log_probabilities_at_masks(logits, inputs))
    return np.stack(found)


def _mask_states(reader: PreTrainedModel, inputs: FactInputs) -> Tensor:
    """States at masks, (state, mask, width)."""
    return states_at(reader, inputs, inputs.masks)[:, torch.from_numpy(inputs.masks >= 0)]


def _masked(sentences: list[list[str]], tokenizer: Any, limit: int, seed: int) -> tuple[dict[str, Tensor], np.ndarray]:
    """Sentences with one random word masked and no document, for a BERT, and the positions of the masks (row, 1)."""
    vocabulary, number = Vocabulary.from_tokenizer(tokenizer), tokenizer.get_vocab()
    rows = [[number[word] for word in words][: limit - 3] for words in sentences]
    ids = np.full((len(rows), max(map(len, rows)) + 3), vocabulary.pad, dtype=np.int64)
    segments, real = np.zeros_like(ids), np.zeros_like(ids)
    for index, row in enumerate(rows):
        end = len(row) + 3
        ids[index, :end] = [vocabulary.start, *row, vocabulary.end, vocabulary.end]
        real[index, :end], segments[index, end - 1] = 1, 1
    assert vocabulary.mask is not None, "the tokenizer of a world has one"
    masks = np.array([1 + int(stream("lens-word", seed, index).integers(len(row))) for index, row in enumerate(rows)])
    ids[np.arange(len(rows)), masks] = vocabulary.mask
    named = {"input_ids": ids, "attention_mask": real, "token_type_ids": segments}
    return {name: torch.from_numpy(array) for name, array in named.items()}, masks[:, None]


def _batches(states: Tensor, training: LensTraining, seed: int) -> Iterator[Tensor]:
    """One batch of rows per step, pass after pass in a new order."""
    done, passes = 0, 0
    while done < training.steps:
        order = torch.from_numpy(stream("lens-rows", seed, passes).permutation(states.shape[1])).to(states.device)
        for rows in order.split(training.tokens):
            if len(rows) == training.tokens or len(order) < training.tokens:
                yield states[:, rows]
                done += 1
        passes += 1


def require_lens(lens: TunedLens, reader: PreTrainedModel) -> None:
    """Raise a `UserError` if a lens does not match the reader's shape."""
    shape = int(reader.config.num_hidden_layers), int(reader.config.hidden_size)
    if (lens.num_layers, lens.width) != shape:
        raise UserError(
            f"A lens must have the reader's layers and width, {shape}. Got {lens.num_layers}, {lens.width}."
        )
