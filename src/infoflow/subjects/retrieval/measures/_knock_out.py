"""Rows of `evidence_flow` for forbidden attention edges, and for single tokens removed as keys."""

# V variant, B row, T query token, S key token

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from infoflow.models import Model, tap

from ._asked import group_estimates
from ._edges import KNOCK_OUTS, EdgeEdit, edges, random_edges
from ._inputs import FactInputs, TokenPart
from ._places import NOWHERE, at, last_token, random_word
from ._variants import scores_of, variant_answers

ALL_LAYERS = -1
METRICS = ("p1", "nats")


@final
@dataclass(frozen=True, slots=True, eq=False)
class Forbidden:
    """Edges that are forbidden in some layers, and their baseline."""

    what: str
    scope: str  # block, upward or all
    layer: int  # −1: all
    layers: frozenset[int]
    edges: np.ndarray  # bool (row, query, key)
    counted: np.ndarray  # bool (row,): questions that have such edges
    random: np.ndarray  # bool (row, query, key)


def knock_outs(inputs: FactInputs, num_layers: int, seed: int) -> list[Forbidden]:
    """Each knock-out that has edges in the rows: in each block alone, and from it upward."""
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
    """Removals of one token as a key, in each block alone and in all.

    The token is the last one of the gold object, of the subject in evidence and question, or another word of the
    evidence; the baseline is a random word of the row.
    """
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
    # In the top block, alone and from it upward are the same; a baseline may be shared.
    runs: dict[tuple[int, frozenset[int]], np.ndarray] = {}
    for one in tried:
        for forbidden in (one.edges, one.random):
            runs.setdefault((id(forbidden), one.layers), forbidden)
    variants = [(forbidden, layers) for (_, layers), forbidden in runs.items()]
    clean_BC, found_VBC = answers_without_edges(model, inputs, variants, batch)
    clean, found = scores_of(clean_BC, inputs), scores_of(found_VBC, inputs)
    number = {run: place for place, run in enumerate(runs)}
    rows = []
    for one in tried:
        names = {"what": one.what, "scope": one.scope, "layer": one.layer}
        for metric in METRICS:
            sign = 1 if metric == "p1" else -1  # surprise rises with a loss
            lost_VB = np.where(one.counted, sign * (clean[metric] - found[metric]), np.nan)
            value = lost_VB[number[id(one.edges), one.layers]]
            baseline = lost_VB[number[id(one.random), one.layers]]
            groups = group_estimates(value, inputs, baseline)
            rows += [{**keys, **names, "metric": metric, **row} for row in groups]
    return rows


def answers_without_edges(
    model: Model, inputs: FactInputs, variants: Sequence[tuple[np.ndarray, frozenset[int]]], batch: int = 64
) -> tuple[np.ndarray, np.ndarray]:
    """Log-probability of each choice, (row, choice), and of each variant, (variant, row, choice).

    Args:
        model: A loaded model.
        inputs: Questions with documents.
        variants: Forbidden edges, bool (row, query, key), and their layers.
        batch: Rows per forward pass.
    """
    stack = model.anatomy.reads.name
    changed = [{(stack, layer) for layer in layers} for _, layers in variants]
    clean, found = [], []
    for start in range(0, len(inputs), batch):
        rows = np.arange(start, min(start + batch, len(inputs)))
        own = [(forbidden[rows], layers) for forbidden, layers in variants]
        answers = variant_answers(
            model,
            inputs.take(rows),
            changed,
            lambda some, own=own: tap(model, on_attention=EdgeEdit(stack, [own[one] for one in some])),
        )
        clean.append(answers[0])
        found.append(answers[1])
    return np.concatenate(clean), np.concatenate(found, axis=1)


def _keys(places: np.ndarray, length: int) -> np.ndarray:
    """All edges to one token of each row, bool (row, query, key)."""
    return np.broadcast_to(at(places, length)[:, None], (len(places), length, length))
