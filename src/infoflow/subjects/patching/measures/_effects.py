"""What each part carries of the difference between two inputs: exactly, and to first order."""

# P pair, N part, B pair of a batch, R bootstrap replicate, 64 bootstrap blocks

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from infoflow.foundation import NUM_BLOCKS, current_display
from infoflow.models import Model

from ._encoded import EncodedPair, PairBatch, batches
from ._parts import ATTENTION, FEED_FORWARD, HEAD, RESIDUAL, Part, Slot
from ._runs import Donated, PairRuns, Recorded, first_order

EXACT, GRADIENT, INTEGRATED = "exact", "gradient", "integrated"
METHODS = (EXACT, GRADIENT, INTEGRATED)
DENOISING, NOISING = "denoising", "noising"
DIRECTIONS = (DENOISING, NOISING)
SHARE = 8  # a batch is at most this part of the tokens of a pass, so that several variants run together


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PairEffects:
    """Changes of the metric, before they are divided by the difference that there is."""

    parts: list[Part]
    clean: Float[np.ndarray, " pair"]
    """The metric of the clean inputs."""
    corrupted: Float[np.ndarray, " pair"]
    blocks: Int[np.ndarray, " pair"]
    effects: dict[tuple[str, str], Float[np.ndarray, "part pair"]]
    """(direction, method) → the change towards the donor's metric."""
    controls: dict[tuple[str, str], Float[np.ndarray, "part pair"]]
    """The same with a donor of the same metric; NaN: there was none."""

    @property
    def gap(self) -> Float[np.ndarray, " pair"]:
        return self.clean - self.corrupted

    def by_block(self, values: Float[np.ndarray, "*rows pair"]) -> Float[np.ndarray, "*rows 64"]:
        """Sums over the pairs of each bootstrap block."""
        found = np.zeros((*values.shape[:-1], NUM_BLOCKS))
        np.add.at(np.moveaxis(found, -1, 0), self.blocks, np.moveaxis(values, -1, 0))
        return found


def names_of(parts: Sequence[Part]) -> set[str]:
    """Names of the slots behind the parts; the residual states are always read."""
    return {one.slot.name for one in parts} | {RESIDUAL}


def pair_effects(runs: PairRuns, encoded: Sequence[EncodedPair], parts: Sequence[Part], steps: int) -> PairEffects:
    """Effects of all parts on all pairs, in both directions, by all three methods."""
    pairs = len(encoded)
    clean, corrupted, blocks = np.zeros(pairs), np.zeros(pairs), np.zeros(pairs, np.int64)
    keys = [(direction, method) for direction in DIRECTIONS for method in METHODS]
    effects = {key: np.zeros((len(parts), pairs)) for key in keys}
    controls = {key: np.full((len(parts), pairs), np.nan) for key in keys}
    with current_display().progress(f"Patching {runs.model.name}", pairs, "pairs") as progress:
        for batch in batches(runs.model, encoded, max(1, runs.budget // SHARE)):
            sides = recorded_sides(runs, batch, names_of(parts))
            clean[batch.rows], corrupted[batch.rows] = (one.metric.double().cpu().numpy() for one in sides)
            blocks[batch.rows] = batch.blocks
            for direction, base, donor, sign in ((DENOISING, *sides[::-1], 1), (NOISING, *sides, -1)):
                for (method, is_control), values in _of_batch(runs, batch, parts, steps, base, donor).items():
                    (controls if is_control else effects)[direction, method][:, batch.rows] = sign * values
            progress.advance(batch.size)
    return PairEffects(
        parts=list(parts), clean=clean, corrupted=corrupted, blocks=blocks, effects=effects, controls=controls
    )


def recorded_sides(runs: PairRuns, batch: PairBatch, names: set[str]) -> tuple[Recorded, Recorded]:
    """The clean and the corrupted side."""
    return tuple(runs.recorded(batch, ids, names) for ids in (batch.clean, batch.corrupted))  # type: ignore[return-value]


def _of_batch(
    runs: PairRuns, batch: PairBatch, parts: Sequence[Part], steps: int, base: Recorded, donor: Recorded
) -> dict[tuple[str, bool], np.ndarray]:
    """(method, is a control) → changes of the metric (N, B)."""
    names, variants = names_of(parts), [[part] for part in parts]
    before = base.metric.double().cpu()
    twins = _twins(batch, base, donor)
    at_base = runs.gradients(batch, base, donor, names, 0.0)
    totals: dict[Slot, Any] = {}
    for step in range(steps):
        for slot, one in runs.gradients(batch, base, donor, names, (step + 0.5) / steps).items():
            totals[slot] = totals.get(slot, 0) + one
    means = {slot: total / steps for slot, total in totals.items()}
    found: dict[tuple[str, bool], np.ndarray] = {}
    for is_control, given in ((False, donor.values), (True, twins)):
        if given is not None:
            found[EXACT, is_control] = (runs.swapped(batch, base, variants, given) - before).numpy()
            found[GRADIENT, is_control] = first_order(parts, at_base, base, given, batch)
            found[INTEGRATED, is_control] = first_order(parts, means, base, given, batch)
    return found


def _twins(batch: PairBatch, base: Recorded, donor: Recorded) -> Donated | None:
    """For each pair the input of another pair, of either side, with the nearest metric by this pair's answers."""
    if batch.size < 2:
        return None
    logits = torch.cat([side.logits.float() for side in (base, donor)])
    answer, wrong = batch.answer.to(logits.device), batch.wrong.to(logits.device)
    against = torch.where(wrong < 0, logits.logsumexp(1, keepdim=True), logits[:, wrong.clamp(min=0)])
    distance = (logits[:, answer] - against - base.metric).abs()  # of each input's metric, by each pair's answers
    own = torch.arange(batch.size)
    distance[own, own] = distance[own + batch.size, own] = torch.inf
    return Donated((base, donor), distance.argmin(0).cpu())


def present(parts: Sequence[Part], model: Model, encoded: Sequence[EncodedPair]) -> list[Part]:
    """Without groups of positions that no pair has."""
    every = list(batches(model, encoded, 1 << 20))
    groups = {
        (part.position, part.stack): any(bool(batch.at(part.position, part.stack).any()) for batch in every)
        for part in parts
        if part.name == RESIDUAL
    }
    return [part for part in parts if part.name != RESIDUAL or groups[part.position, part.stack]]


def pool_of(parts: Sequence[Part]) -> list[Part]:
    """The parts that together are everything between the embeddings and the answer: heads, and feed-forward parts."""
    heads = HEAD if any(part.name == HEAD for part in parts) else ATTENTION
    return [part for part in parts if part.name in (heads, FEED_FORWARD)]
