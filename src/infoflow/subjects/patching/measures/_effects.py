"""How much of the difference between two inputs each part carries, exactly and to first order."""

# P pair, N part, B pair of a batch, R bootstrap replicate, 64 bootstrap blocks

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from infoflow.foundation import NUM_BLOCKS, current_display

from ._encoded import PairBatch
from ._parts import RESIDUAL, Part
from ._runs import Donated, PairRuns, Recorded, first_order

EXACT, GRADIENT, INTEGRATED = "exact", "gradient", "integrated"
METHODS = (EXACT, GRADIENT, INTEGRATED)
DENOISING, NOISING = "denoising", "noising"
DIRECTIONS = (DENOISING, NOISING)

Effects = dict[tuple[str, str], Float[np.ndarray, "part pair"]]
"""(direction, method) → changes of the metric towards the donor's."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PairEffects:
    """Changes of the metric, before they are divided by the difference between the inputs."""

    parts: list[Part]
    clean: Float[np.ndarray, " pair"]
    """(P,): the metric of the clean inputs."""
    corrupted: Float[np.ndarray, " pair"]
    blocks: Int[np.ndarray, " pair"]
    effects: Effects
    controls: Effects
    """The same changes with values from another input of nearly the same metric; NaN: there was none."""

    @property
    def gap(self) -> Float[np.ndarray, " pair"]:
        return self.clean - self.corrupted

    def by_block(self, values: Float[np.ndarray, "*rows pair"]) -> Float[np.ndarray, "*rows 64"]:
        """Sums over the pairs of each bootstrap block."""
        found = np.zeros((*values.shape[:-1], NUM_BLOCKS))
        np.add.at(np.moveaxis(found, -1, 0), self.blocks, np.moveaxis(values, -1, 0))
        return found


def pair_effects(runs: PairRuns, every: Sequence[PairBatch], parts: Sequence[Part], steps: int) -> PairEffects:
    """Effects on all pairs, in both directions, by all three methods, for the parts that have a token in some pair."""
    tokens = {(one.position, one.stack) for one in parts if one.name == RESIDUAL}
    absent = {place for place in tokens if not any(batch.at(*place).any() for batch in every)}
    parts = [one for one in parts if one.name != RESIDUAL or (one.position, one.stack) not in absent]
    pairs = sum(batch.size for batch in every)
    clean, corrupted, blocks = np.zeros(pairs), np.zeros(pairs), np.zeros(pairs, np.int64)
    keys = [(direction, method) for direction in DIRECTIONS for method in METHODS]
    effects, controls = ({key: np.full((len(parts), pairs), np.nan) for key in keys} for _ in range(2))
    between = [(step + 0.5) / steps for step in range(steps)]
    with current_display().progress(f"Patching {runs.model.name}", pairs, "pairs") as progress:
        for batch in every:
            sides, rows = runs.sides(batch, parts), batch.rows
            clean[rows], corrupted[rows] = (one.metric.double().cpu().numpy() for one in sides)
            blocks[rows] = batch.blocks
            for direction, base, donor, sign in ((DENOISING, *sides[::-1], 1), (NOISING, *sides, -1)):
                before, variants = base.metric.double().cpu(), [[part] for part in parts]
                ways = {
                    GRADIENT: runs.gradients(batch, base, donor, [0.0]),
                    INTEGRATED: runs.gradients(batch, base, donor, between),
                }
                for found, given in ((effects, donor.values), (controls, _twins(batch, base, donor))):
                    if given is not None:
                        exact = runs.swapped(batch, base, variants, given) - before
                        found[direction, EXACT][:, rows] = sign * exact.numpy()
                        for method, gradients in ways.items():
                            values = first_order(parts, gradients, base, given, batch)
                            found[direction, method][:, rows] = sign * values
            progress.advance(batch.size)
    return PairEffects(parts=parts, clean=clean, corrupted=corrupted, blocks=blocks, effects=effects, controls=controls)


def _twins(batch: PairBatch, base: Recorded, donor: Recorded) -> Donated | None:
    """For each pair, the input of another pair whose metric, for this pair's answers, is nearest to that of `base`."""
    if batch.size < 2:
        return None
    logits = torch.cat([side.logits.float() for side in (base, donor)])
    answer, wrong = batch.answer.to(logits.device), batch.wrong.to(logits.device)
    against = torch.where(wrong < 0, logits.logsumexp(1, keepdim=True), logits[:, wrong.clamp(min=0)])
    distance = (logits[:, answer] - against - base.metric).abs()  # (input, pair): by the pair's answers
    own = torch.arange(batch.size)
    distance[own, own] = distance[own + batch.size, own] = torch.inf
    return Donated((base, donor), distance.argmin(0).cpu())
