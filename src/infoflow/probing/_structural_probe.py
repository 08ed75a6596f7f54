"""Structural probes: a linear map under which squared distances match the tree's, or squared norms its depths."""

# S seed, P probe (seeds x layers, layers inner), A probe that still trains, B sentence, T word, R rank, D width

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.foundation import UserError, stream

from ._codelength import shuffled_batches
from ._stacked import Schedule, train_stacked
from ._trees import TreeSentence

Structure = Literal["distance", "depth"]
STRUCTURES = ("distance", "depth")
_HELD = 1 << 24  # numbers in the mapped words of sentences that are only evaluated
STRUCTURAL_SCHEDULE = Schedule(factor=0.1, least=1e-4, epochs=40)
"""Adam at 0.001; a tenth after an epoch without a new best; at most 40 epochs; stops after 5 without 1e-4 gain."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StructuralMaps:
    """Trained maps B."""

    maps: Float[np.ndarray, "seed layer rank width"]
    structure: Structure

    def predict(self, states: np.ndarray, sentences: Sequence[TreeSentence]) -> list[np.ndarray]:
        """Predicted distances (seeds, layers, words, words) or depths (seeds, layers, words) of each sentence."""
        maps = torch.from_numpy(self.maps)
        seeds, layers = maps.shape[:2]
        found = []
        with torch.no_grad():
            for sentence in sentences:
                words = torch.from_numpy(np.asarray(states[sentence.rows], dtype=np.float32))
                mapped = torch.einsum("slrd,tld->sltr", maps, words).flatten(0, 1)
                guess = squared_distances(mapped) if self.structure == "distance" else (mapped**2).sum(-1)
                found.append(guess.unflatten(0, (seeds, layers)).numpy())
        return found


def structural_probe(
    states: np.ndarray,
    train: Sequence[TreeSentence],
    dev: Sequence[TreeSentence],
    structure: Structure = "distance",
    seed: int | Sequence[int] = 0,
    *,
    rank: int | None = None,
    batch: int = 20,
    schedule: Schedule = STRUCTURAL_SCHEDULE,
    device: torch.device | None = None,
) -> StructuralMaps:
    r"""Learn B for all layers and seeds as one batched problem.

    $$ \text{distance: } \frac{1}{|s|^2} \sum_{i,j} \left| d_{ij} - \lVert B(h_i - h_j) \rVert^2 \right|, \qquad
       \text{depth: } \frac{1}{|s|} \sum_i \left| \mathrm{depth}_i - \lVert B h_i \rVert^2 \right| $$

    Both are averaged over sentences. The squared distance, not its root, predicts the number of edges. B is initialised
    uniformly within ±.05.

    Args:
        states: Word states, (words, layers, width), float32; may be a memory-map.
        train: Sentences with their trees; those of `dev` decide when the rate falls and when a probe stops.
        structure: `"distance"` or `"depth"`.
        seed: One seed, or several.
        rank: Rows of B, at most the width; default: the width.
        batch: Sentences per step.
        schedule: Default: the reference's.
        device: Where to train.

    Raises:
        UserError: A part has no sentence with two words, or the rank is not in 1..width.

    Source: [@hewitt2019structural], the authors' code.
    """
    width = states.shape[2]
    size = width if rank is None else rank
    if not 1 <= size <= width:
        raise UserError(f"rank must lie in 1..{width}, the width of the states. Got {rank}.")
    if structure not in STRUCTURES:
        raise UserError(f"structure must be distance or depth. Got {structure}.")
    if batch < 1:
        raise UserError(f"batch must be at least 1 sentence. Got {batch}.")
    parts = [[each for each in part if len(each) > 1] for part in (train, dev)]
    for name, part in zip(("training", "development"), parts, strict=True):
        if not part:
            raise UserError(f"A structural probe needs sentences of two words and more. The {name} part has none.")
    seeds = [seed] if isinstance(seed, int) else list(seed)
    with torch.inference_mode(False):
        stack = _MapStack(states=states, structure=structure, seeds=seeds, device=device or torch.device("cpu"))
        fresh = first_maps(seeds, states.shape[1], size, width).to(stack.device)
        (trained,) = train_stacked(
            [fresh],
            shuffled_batches(len(parts[0]), batch, f"structural-{structure}", seeds),
            lambda parameters, active, index_SB: stack.losses(parameters[0], active, parts[0], index_SB.numpy()),
            lambda parameters, active: stack.mean_loss(parameters[0], active, parts[1]),
            schedule,
        )
    return StructuralMaps(maps=trained.unflatten(0, (len(seeds), -1)).cpu().numpy(), structure=structure)


def random_maps(
    seeds: Sequence[int], layers: int, rank: int, width: int, structure: Structure = "distance"
) -> StructuralMaps:
    """The control: B at initialisation, the same in all layers."""
    maps = first_maps(seeds, layers, rank, width)
    return StructuralMaps(maps=maps.unflatten(0, (len(seeds), layers)).numpy(), structure=structure)


def first_maps(seeds: Sequence[int], layers: int, rank: int, width: int) -> Float[Tensor, "probe rank width"]:
    """Uniform initial maps within ±.05."""
    drawn = [stream("structural-probe", seed).uniform(-0.05, 0.05, (rank, width)) for seed in seeds]
    return torch.from_numpy(np.stack(drawn)).float().repeat_interleave(layers, dim=0)


def squared_distances(mapped: Float[Tensor, "*probe word rank"]) -> Float[Tensor, "*probe word word"]:
    """Squared distances between all words, never below 0."""
    squares = (mapped**2).sum(-1)
    products = mapped @ mapped.mT
    return (squares[..., :, None] + squares[..., None, :] - 2 * products).clamp(min=0)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _MapStack:
    """The maps of all seeds and layers, and their losses."""

    states: np.ndarray
    structure: Structure
    seeds: Sequence[int]
    device: torch.device

    @property
    def layers(self) -> int:
        return self.states.shape[1]

    def losses(
        self, maps: Tensor, active: Int[Tensor, " probe"], part: Sequence[TreeSentence], index_SB: np.ndarray
    ) -> Float[Tensor, " probe"]:
        """Mean loss over the sentences, for the seeds in `index_SB` (one row can serve all seeds)."""
        words, gold, weight = self._padded(part, index_SB)
        seed_of = active // self.layers if len(index_SB) > 1 else torch.zeros_like(active)
        read = words[seed_of, :, :, active % self.layers]
        mapped = torch.bmm(read.flatten(1, 2), maps.mT).unflatten(1, read.shape[1:3])
        guess = squared_distances(mapped) if self.structure == "distance" else (mapped**2).sum(-1)
        missed = ((guess - gold[seed_of]).abs() * weight[seed_of]).flatten(1)
        return missed.sum(1) / index_SB.shape[1]

    def mean_loss(self, maps: Tensor, active: Int[Tensor, " probe"], part: Sequence[TreeSentence]) -> Tensor:
        total = torch.zeros(len(active), device=self.device)
        for index in self._parts(part, len(active)):
            total += self.losses(maps, active, part, index[None]) * len(index)
        return total / len(part)

    def _parts(self, part: Sequence[TreeSentence], probes: int) -> Iterator[np.ndarray]:
        order = np.argsort([len(each) for each in part], kind="stable")
        size = max(1, _HELD // (probes * len(part[order[-1]]) * self.states.shape[2]))
        for start in range(0, len(part), size):
            yield order[start : start + size]

    def _padded(self, part: Sequence[TreeSentence], index_SB: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
        """States (S, B, T, L, D), gold numbers, and the weight of each error: 0 where there is no word."""
        longest = max(len(part[i]) for i in index_SB.flat)
        flat = (longest, longest) if self.structure == "distance" else (longest,)
        rows = np.zeros((*index_SB.shape, longest), dtype=np.int64)
        gold, weight = (np.zeros((*index_SB.shape, *flat), dtype=np.float32) for _ in range(2))
        for place in np.ndindex(index_SB.shape):
            sentence = part[index_SB[place]]
            num = len(sentence)
            rows[place][:num] = sentence.rows
            inside = (slice(num),) * len(flat)
            gold[place][inside] = sentence.distances if self.structure == "distance" else sentence.depths
            weight[place][inside] = 1 / num ** len(flat)
        words = torch.from_numpy(np.asarray(self.states[rows], dtype=np.float32))
        return words.to(self.device), torch.from_numpy(gold).to(self.device), torch.from_numpy(weight).to(self.device)
