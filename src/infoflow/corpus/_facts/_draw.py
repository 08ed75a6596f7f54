"""Draws the facts of a world: every draw is a hash of its purpose and subject, independent of other draws."""

import numpy as np

from infoflow.foundation import hash64_array, stream

from ._config import FactConfig
from ._fact import Fact, Kind


def draw_names(config: FactConfig, seed: int) -> list[tuple[int, int]]:
    """First and family name of each entity, without repetition."""
    order = stream("facts-names", seed).permutation(config.given * config.family)[: config.entities]
    return [(int(one) % config.given, int(one) // config.given) for one in order]


def draw_facts(config: FactConfig, seed: int) -> list[Fact]:
    """A fact for each entity and relation, in that order."""
    kinds = _kinds(config, seed)
    objects = _objects(config, seed)
    weights = _weights(kinds, config, seed)
    facts = []
    for number, (kind, chosen, weight) in enumerate(zip(kinds, objects, weights, strict=True)):
        entity, relation = divmod(number, config.relations)
        edited = chosen
        if kind == "changed":
            edited = changed_object(chosen, config.choices(relation), number, seed, "edited")
        facts.append(Fact(number, entity, relation, kind, chosen, edited, weight))
    return facts


def changed_object(chosen: int, choices: int, fact: int, seed: int, purpose: str) -> int:
    """A different object, `(o + 1 + U{0..m−2}) mod m`."""
    step = int(hash64_array((f"facts-{purpose}", seed), np.array([fact]))[0] % np.uint64(choices - 1))
    return (chosen + 1 + step) % choices


def _uniform(purpose: str, seed: int, *columns: np.ndarray) -> np.ndarray:
    """Numbers of [0, 1), one for each row."""
    return (hash64_array((f"facts-{purpose}", seed), *columns) >> np.uint64(11)) * 2.0**-53


def _kinds(config: FactConfig, seed: int) -> list[Kind]:
    numbers = np.arange(config.entities * config.relations)
    # Evenly spaced: names are already in random order, and so the share is exact.
    steps = np.arange(config.entities + 1) * config.later + stream("facts-later", seed).random()
    later = np.repeat(np.diff(np.floor(steps)) > 0, config.relations)
    draws = _uniform("split", seed, numbers)
    changed = hash64_array(("facts-changed", seed), numbers) % np.uint64(config.changed_every) == 0
    names: list[Kind] = ["trained", "changed", "held out", "withheld", "later"]
    known = 1 - config.held_out - config.withheld
    code = np.select([later, draws >= 1 - config.withheld, draws >= known, changed], [4, 3, 2, 1], default=0)
    return [names[one] for one in code.tolist()]


def _objects(config: FactConfig, seed: int) -> list[int]:
    """Uniform (or Zipfian) objects. The two relations of a pair never have the same one.

    Otherwise the object of an untrained fact could occur with its subject in the query of another fact: a leak. Each
    object alone stays uniform.
    """
    entities = np.arange(config.entities)
    columns = np.empty((config.entities, config.relations), dtype=np.int64)
    for relation in range(config.relations):
        draws = _uniform("object", seed, entities, np.full_like(entities, relation))
        weights = _object_weights(config.choices(relation), config.zipf)
        chances = np.tile(weights, (config.entities, 1))
        if relation % 2:
            chances[entities, columns[:, relation - 1]] = 0.0
        bounds = chances.cumsum(axis=1)
        columns[:, relation] = (draws[:, None] * bounds[:, -1:] >= bounds).sum(axis=1)
    return columns.ravel().tolist()


def _object_weights(choices: int, zipf: bool) -> np.ndarray:
    return 1.0 / np.arange(1, choices + 1) if zipf else np.ones(choices)


def _weights(kinds: list[Kind], config: FactConfig, seed: int) -> list[int]:
    """Exposures: consecutive trained facts get each weight once, in random order."""
    weights, counted, order = [], 0, np.empty(0, dtype=int)
    for kind in kinds:
        if kind not in ("trained", "changed"):
            weights.append(0)
            continue
        block, place = divmod(counted, len(config.weights))
        if place == 0:
            order = stream("facts-weights", seed, block).permutation(len(config.weights))
        weights.append(int(config.weights[order[place]]))
        counted += 1
    return weights
