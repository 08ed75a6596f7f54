"""A tuned lens and linear probes for questions about facts, and the states that they read."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from infoflow._transformers import PreTrainedModel
from infoflow.corpus import Fact, FactWorld, Vocabulary
from infoflow.foundation import NUM_REPLICATES, UserError, current_display, hash64, stream
from infoflow.models import load_model, pad_rows, readout
from infoflow.representations import LensTraining, TunedLens, fit_tuned_lens
from infoflow.results import estimate
from infoflow.subjects.probing.measures import (
    NO_ANSWER,
    LabelledRows,
    ProbeGrid,
    ProbeSettings,
    TrainedProbes,
    train_probes,
)

from ._answers import BATCH, FactReadings, choice_log_probabilities_at_masks, limit_of
from ._inputs import FactInputs, TokenPart, fact_inputs
from ._knock_out import last_token
from ._tables import EVERY_WEIGHT, group_rows, sampled_facts

Place = Literal["mask", "subject"]


def states_at(reader: PreTrainedModel, inputs: FactInputs, places: np.ndarray) -> Tensor:
    """States 0..L at tokens of each row, (state, row, place, width), on the CPU; undefined at places of −1."""
    return states_of(reader, inputs.tensors(), places)


@torch.no_grad()
def states_of(reader: PreTrainedModel, named: dict[str, Tensor], places: np.ndarray) -> Tensor:
    """`states_at` for a BERT's arguments, padded at the end."""
    found = []
    for start in range(0, len(places), BATCH):
        rows = slice(start, start + BATCH)
        longest = int(named["attention_mask"][rows].sum(dim=1).max())
        inputs = {name: tensor[rows, :longest].to(reader.device) for name, tensor in named.items()}
        states = reader.base_model(**inputs, output_hidden_states=True).hidden_states
        at = torch.from_numpy(places[rows]).clamp(min=0).to(reader.device)
        of = torch.arange(len(at), device=reader.device)[:, None]
        found.append(torch.stack([one[of, at] for one in states]).cpu())
    return torch.cat(found, dim=1)


def half_of_entities(world: FactWorld) -> frozenset[int]:
    """Half of the entities, the same for every model: lenses and probes train on them and are tested on the others."""
    entities = sorted(range(world.config.entities), key=lambda one: hash64("half", one))
    chosen = frozenset(entities[: len(entities) // 2])
    trained = {fact.entity for fact in world.of_kind("trained")}
    if not trained & chosen or not trained - chosen:
        raise UserError(
            f"A lens is trained on half of the entities and measured on the others, so both need trained facts. Got "
            f"{len(entities)} entities, {len(trained)} of them with trained facts.\nGenerate a larger world."
        )
    return chosen


def moved_objects(inputs: FactInputs, seed: int = 0) -> np.ndarray:
    """Objects permuted among the facts of each relation, int64 (row,); all questions about a fact get the same one."""
    relations = np.array([fact.relation for fact in inputs.facts])
    numbers = np.array([fact.number for fact in inputs.facts])
    moved = np.empty(len(inputs), dtype=np.int64)
    for relation in np.unique(relations):
        rows = np.flatnonzero(relations == relation)
        distinct, first, fact = np.unique(numbers[rows], return_index=True, return_inverse=True)
        order = stream("moved-objects", seed, int(relation)).permutation(len(distinct))
        moved[rows] = inputs.answers[rows][first][order][fact]
    return moved


# A tuned lens for questions: trained on other facts with every document, and on sentences of the language.

_FACTS = 25  # maximum per kind and exposure, each with every document
_SENTENCES = 600  # about a quarter of the training data, as in the model's training


def fact_lens(
    reader: PreTrainedModel, world: FactWorld, tokenizer: Any, *, training: LensTraining | None = None, seed: int = 0
) -> TunedLens:
    """A tuned lens at masks, for `knowledge_lens` and `knowledge_conflict`.

    It is trained to match the model's own answers, on questions about half of the entities with every document, and on
    sentences of the language with one random word masked. It never trains on a fact on which it is measured.

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
    readings = FactReadings(model=reader, world=world, tokenizer=tokenizer, facts=facts, seed=seed)
    read = (readings.inputs(one) for one in readings.available if readings.has(one))
    parts = [states_at(reader, one, one.masks)[:, torch.from_numpy(one.masks >= 0)] for one in read]
    if sentences := world.language_sentences(_SENTENCES):
        parts.append(states_of(reader, *_masked(sentences, tokenizer, limit_of(reader), seed))[:, :, 0])
    states = torch.cat(parts, dim=1).to(reader.device)
    return fit_tuned_lens(readout(load_model(reader)), _batches(states, training, seed), training)


def lens_answers(
    reader: PreTrainedModel, states: Tensor, inputs: FactInputs, lens: TunedLens | None = None
) -> np.ndarray:
    """Log-probabilities over choices, (state, row, choice), from the states at the masks, after the tuned lens if
    there is one.
    """
    head, found = reader.get_submodule("cls"), []
    with torch.no_grad():
        for layer, of_layer in enumerate(states):
            rows = of_layer.to(reader.device)
            logits = head(rows if lens is None else lens(rows, layer))
            found.append(choice_log_probabilities_at_masks(logits, inputs))
    return np.stack(found)


def _masked(sentences: list[list[str]], tokenizer: Any, limit: int, seed: int) -> tuple[dict[str, Tensor], np.ndarray]:
    """Sentences with one random word masked and no document, for a BERT, and the positions of the masks (row, 1)."""
    vocabulary, number = Vocabulary.from_tokenizer(tokenizer), tokenizer.get_vocab()
    rows = [[number[word] for word in words][: limit - 3] for words in sentences]
    ids, real = pad_rows([[vocabulary.start, *row, vocabulary.end, vocabulary.end] for row in rows], vocabulary.pad)
    segments, _ = pad_rows([[0] * (len(row) + 2) + [1] for row in rows], 0)
    assert vocabulary.mask is not None, "the tokenizer of a world has a mask token"
    masks = np.array([1 + int(stream("lens-word", seed, index).integers(len(row))) for index, row in enumerate(rows)])
    ids[np.arange(len(rows)), masks] = vocabulary.mask
    return {"input_ids": ids, "attention_mask": real, "token_type_ids": segments}, masks[:, None]


def _batches(states: Tensor, training: LensTraining, seed: int) -> Iterator[Tensor]:
    """One batch of rows per step; each epoch has a new order."""
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


# The accuracy of a linear probe for a fact's object, on states of the question alone.

LEAST_FACTS = 20
"""Mean number of training facts per object below which a probe memorises facts.

With two, a probe had an accuracy of .19 at the last layer of a model whose own P@1 was 1.00.
"""
_DEV = 5  # one in five of the probe's entities is held out for early stopping
_TESTED, _TESTED_TOO = ("trained", "held out", "withheld"), ("changed",)
_PLACES: tuple[Place, ...] = ("mask", "subject")
_TASKS = ("accuracy", "control")


def probe_rows(
    reader: PreTrainedModel, world: FactWorld, tokenizer: Any, *, least: int = LEAST_FACTS, seed: int = 0
) -> Iterator[dict[str, Any]]:
    """Rows of `knowledge_lens` for linear probes at the mask and at the subject's last token, states 0..L.

    Each question has the empty document. Two relations that share their objects have one probe, trained on the
    trained facts of half of the entities and tested on the others ("accuracy"). For "control", the objects of a
    relation are permuted among its facts. Dates are left out, since each has only one or two facts. Probes are also
    tested on untrained facts, where they should be at chance, and on facts that change later, which are part of
    training. With fewer than `least` training facts per object, the values are NaN (`layer` −1), with a note.

    Source: control tasks adapted from [@hewitt2019control], with facts instead of word types.
    """
    half = half_of_entities(world)
    facts = [fact for fact in world.facts if fact.relation not in world.config.date_relations]
    taught = [fact for fact in facts if fact.entity in half and fact.trained]
    others = [fact for fact in facts if fact.entity not in half]
    tested, changed = ([fact for fact in others if fact.kind in kinds] for kinds in (_TESTED, _TESTED_TOO))
    num_objects = world.config.objects * len({fact.relation // 2 for fact in facts})
    if len(taught) < least * num_objects or not tested:
        current_display().note(
            f"This world has too few facts for a probe: half of the entities have {len(taught):,} trained facts, or "
            f"{len(taught) / max(num_objects, 1):.1f} for each of {num_objects} objects. A probe needs {least}."
        )
        yield from _untested(world)
        return
    pairs, objects = sorted({fact.relation // 2 for fact in [*taught, *tested]}), world.config.objects
    changed = [fact for fact in changed if fact.relation // 2 in pairs]
    inputs = fact_inputs(world, tokenizer, [*taught, *tested], "none", limit=limit_of(reader))
    labels, split = _labels(inputs, pairs, seed), _split(inputs.facts, half)
    for place in _PLACES:
        states = _states(reader, inputs, place)
        probes = _trained(states, labels, split, objects, seed)
        test = split["test"]
        test_facts = [inputs.facts[row] for row in test]
        yield from _scored(_predicted(probes, states[test], labels), labels[:, test], test_facts, place, objects)
        if changed:  # in a separate pass, so that the numbers of the other facts do not change
            more = fact_inputs(world, tokenizer, changed, "none", limit=limit_of(reader))
            wanted = _labels(more, pairs, seed)
            predicted = _predicted(probes, _states(reader, more, place), wanted)
            yield from _scored(predicted, wanted, more.facts, place, objects)


def _states(reader: PreTrainedModel, inputs: FactInputs, place: Place) -> np.ndarray:
    """States 0..L at one position of each question, (row, state, width)."""
    where = inputs.masks[:, :1] if place == "mask" else last_token(inputs, TokenPart.SUBJECT)[:, None]
    return states_at(reader, inputs, where)[:, :, 0].transpose(0, 1).float().numpy()


def _labels(inputs: FactInputs, pairs: Sequence[int], seed: int) -> np.ndarray:
    """Labels of each probe, int64 (set, row): for each pair of relations the objects, then the permuted objects."""
    relations = np.array([fact.relation for fact in inputs.facts])
    moved = moved_objects(inputs, seed)
    sets = [
        np.where(relations // 2 == pair, objects, NO_ANSWER) for pair in pairs for objects in (inputs.answers, moved)
    ]
    return np.stack(sets)


def _split(facts: Sequence[Fact], half: frozenset[int]) -> dict[str, np.ndarray]:
    of_half = sorted({fact.entity for fact in facts} & half)
    dev = set(of_half[::_DEV])
    part = np.array(["test" if one.entity not in half else "dev" if one.entity in dev else "train" for one in facts])
    return {name: np.flatnonzero(part == name) for name in ("train", "dev", "test")}


def _trained(
    states: np.ndarray, labels: np.ndarray, split: dict[str, np.ndarray], objects: int, seed: int
) -> TrainedProbes:
    num_sets, num_states = len(labels), states.shape[1]
    layer, of_set = (grid.ravel() for grid in np.meshgrid(np.arange(num_states), np.arange(num_sets), indexing="ij"))
    grid = ProbeGrid(layer=layer, seed=np.full_like(layer, seed), labels=of_set)
    train, dev = (LabelledRows(rows=states[split[one]], labels=labels[:, split[one]]) for one in ("train", "dev"))
    return train_probes(train, dev, grid, np.full(num_sets, objects), ProbeSettings())


def _predicted(probes: TrainedProbes, states: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The most likely object of each row, (state, set, row), from states (row, state, width)."""
    return probes.predict(states).reshape(states.shape[1], len(labels), -1)


def _scored(
    predicted: np.ndarray, wanted: np.ndarray, tested: Sequence[Fact], place: Place, objects: int
) -> Iterator[dict[str, Any]]:
    """Rows of each state, task and group of facts, from gold objects (set, row)."""
    for layer, of_layer in enumerate(predicted):
        for task, metric in enumerate(_TASKS):
            answered = wanted[task::2] != NO_ANSWER  # each row belongs to exactly one pair
            right = ((of_layer[task::2] == wanted[task::2]) & answered).any(axis=0).astype(float)
            keys = {"document": "none", "layer": layer, "lens": "probe", "place": place, "metric": metric}
            yield from group_rows(tested, right, np.full(len(right), 1 / objects), "share", **keys)


def _untested(world: FactWorld) -> Iterator[dict[str, Any]]:
    numbers = estimate(float("nan"), np.full(NUM_REPLICATES, np.nan), 1 / world.config.objects, 0)
    for place in _PLACES:
        for metric in _TASKS:
            keys = {"document": "none", "layer": -1, "lens": "probe", "place": place, "metric": metric}
            yield {"facts": "trained", "weight": EVERY_WEIGHT, **keys, **numbers}
