"""The accuracy of a linear probe for a fact's object, on states of the question alone."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from transformers import PreTrainedModel

from infoflow.corpus import Fact, FactWorld
from infoflow.foundation import NUM_REPLICATES, current_display
from infoflow.probing import NOT_ASKED, LabelledRows, ProbeGrid, ProbeSettings, TrainedProbes, train_probes
from infoflow.results import estimate

from ._candidates import limit_of
from ._fact_states import Place, half_of_entities, last_of_subject, states_at
from ._groups import EVERY_WEIGHT, group_rows
from ._inputs import FactInputs, fact_inputs
from ._moved_objects import moved_objects

LEAST_FACTS = 20
"""Training facts per object, on average, below which a probe memorises facts.

With two, one had .19 at the top of a model whose own P@1 was 1.00.
"""
_DEV = 5  # one in this many of the probe's entities is for early stopping
_TESTED, _TESTED_TOO = ("trained", "held out", "withheld"), ("changed",)
_PLACES: tuple[Place, ...] = ("mask", "subject")
_TASKS = ("accuracy", "control")


def probe_rows(
    reader: PreTrainedModel,
    world: FactWorld,
    tokenizer: Any,
    *,
    least: int = LEAST_FACTS,
    settings: ProbeSettings | None = None,
    seed: int = 0,
) -> Iterator[dict[str, Any]]:
    """Rows of `knowledge_lens` for linear probes at the mask and at the subject's last token, states 0..L.

    The document is the empty one. A pair of relations that share their objects has one probe, trained on the trained
    facts of half of the entities and tested on the others: "accuracy". For "control" the objects of a relation are
    permuted among its facts. Dates are left out: each has only one or two facts. Untrained facts are tested too, where
    a probe should be at chance, as are facts that change later, which are part of training.

    Args:
        reader: A BERT, in evaluation mode.
        world: World of the facts.
        tokenizer: The world's tokenizer.
        least: Training facts per object; with fewer, the values are NaN (`layer` −1), with a note.
        settings: Settings of the probes.
        seed: Seeds the probes and the control.

    Raises:
        UserError: The world has too few entities.

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
            f"This world has too few facts for a probe: {len(taught):,} trained facts of half of the entities are "
            f"{len(taught) / max(num_objects, 1):.1f} for each of {num_objects} objects, and it needs {least}."
        )
        yield from _untested(world)
        return
    pairs, objects = sorted({fact.relation // 2 for fact in [*taught, *tested]}), world.config.objects
    changed = [fact for fact in changed if fact.relation // 2 in pairs]
    inputs = fact_inputs(world, tokenizer, [*taught, *tested], "none", limit=limit_of(reader))
    labels, split = _labels(inputs, pairs, seed), _split(inputs.facts, half)
    for place in _PLACES:
        states = _states(reader, inputs, place)
        probes = _trained(states, labels, split, objects, settings or ProbeSettings(), seed)
        test = split["test"]
        asked_facts = [inputs.facts[row] for row in test]
        yield from _scored(_predicted(probes, states[test], labels), labels[:, test], asked_facts, place, objects)
        if changed:  # apart: what the others' numbers are made of stays as it is
            more = fact_inputs(world, tokenizer, changed, "none", limit=limit_of(reader))
            wanted = _labels(more, pairs, seed)
            predicted = _predicted(probes, _states(reader, more, place), wanted)
            yield from _scored(predicted, wanted, more.facts, place, objects)


def _states(reader: PreTrainedModel, inputs: FactInputs, place: Place) -> np.ndarray:
    """States 0..L at one position of each question, (row, state, width)."""
    where = inputs.masks[:, :1] if place == "mask" else last_of_subject(inputs)
    return states_at(reader, inputs, where)[:, :, 0].transpose(0, 1).float().numpy()


def _labels(inputs: FactInputs, pairs: Sequence[int], seed: int) -> np.ndarray:
    """Objects of each set (pair and task) and row, int64 (set, row): its own, and permuted."""
    relations = np.array([fact.relation for fact in inputs.facts])
    moved = moved_objects(inputs, seed)
    sets = [
        np.where(relations // 2 == pair, objects, NOT_ASKED) for pair in pairs for objects in (inputs.answers, moved)
    ]
    return np.stack(sets)


def _split(facts: Sequence[Fact], half: frozenset[int]) -> dict[str, np.ndarray]:
    """Rows to train on, for early stopping, and to test."""
    of_half = sorted({fact.entity for fact in facts} & half)
    dev = set(of_half[::_DEV])
    part = np.array(["test" if one.entity not in half else "dev" if one.entity in dev else "train" for one in facts])
    return {name: np.flatnonzero(part == name) for name in ("train", "dev", "test")}


def _trained(
    states: np.ndarray,
    labels: np.ndarray,
    split: dict[str, np.ndarray],
    objects: int,
    settings: ProbeSettings,
    seed: int,
) -> TrainedProbes:
    """A probe for each state and set."""
    num_sets, num_states = len(labels), states.shape[1]
    layer, of_set = (grid.ravel() for grid in np.meshgrid(np.arange(num_states), np.arange(num_sets), indexing="ij"))
    grid = ProbeGrid(layer=layer, seed=np.full_like(layer, seed), labels=of_set)
    train, dev = (LabelledRows(rows=states[split[one]], labels=labels[:, split[one]]) for one in ("train", "dev"))
    return train_probes(train, dev, grid, np.full(num_sets, objects), settings)


def _predicted(probes: TrainedProbes, states: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The most likely object of each row, (state, set, row), from states (row, state, width)."""
    return probes.predict(states).reshape(states.shape[1], len(labels), -1)


def _scored(
    predicted: np.ndarray, wanted: np.ndarray, tested: Sequence[Fact], place: Place, objects: int
) -> Iterator[dict[str, Any]]:
    """Rows of each state, task and group of facts, from gold objects (set, row)."""
    for layer, of_layer in enumerate(predicted):
        for task, metric in enumerate(_TASKS):
            asked = wanted[task::2] != NOT_ASKED  # of each row, by one pair alone
            right = ((of_layer[task::2] == wanted[task::2]) & asked).any(axis=0).astype(float)
            keys = {"document": "none", "layer": layer, "lens": "probe", "place": place, "metric": metric}
            for row in group_rows(tested, right, np.full(len(right), 1 / objects), "share"):
                yield {**row, **keys}


def _untested(world: FactWorld) -> Iterator[dict[str, Any]]:
    """Rows with NaN for untested probes."""
    numbers = estimate(float("nan"), np.full(NUM_REPLICATES, np.nan), 1 / world.config.objects, 0)
    for place in _PLACES:
        for metric in _TASKS:
            keys = {"document": "none", "layer": -1, "lens": "probe", "place": place, "metric": metric}
            yield {"facts": "trained", "weight": EVERY_WEIGHT, **keys, **numbers}
