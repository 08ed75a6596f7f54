"""Trees as distances and depths, and structural probes: linear maps that recover them from states."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.foundation import UserError, stream
from infoflow.representations import Schedule, spearman_rows, train_stacked, uniform

from ._codelength import shuffled_batches


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TreeSentence:
    """The words of one sentence that have states, and their positions in its tree."""

    rows: Int[np.ndarray, " word"]  # row of each word in the states
    distances: Float[np.ndarray, "word word"]
    """Edges on the path between two words, which may pass through words left out."""
    depths: Float[np.ndarray, " word"]  # edges from the root, whose depth is 0
    edges: Bool[np.ndarray, "word word"]  # whether one word governs the other; symmetric
    counted: Bool[np.ndarray, " word"]  # words that count for UUAS and root accuracy: all but punctuation

    def __len__(self) -> int:
        return len(self.rows)


def tree_distances(heads: Sequence[int]) -> tuple[np.ndarray, np.ndarray] | None:
    """Distances between all words and depths below the root, in edges; None if the heads do not form one tree.

    Trees have exactly one root, no cycle or disconnected part, and no head outside the sentence.
    """
    num = len(heads)
    given = np.asarray(heads, dtype=np.int64)
    if num == 0 or (given < -1).any() or (given >= num).any() or (given == -1).sum() != 1:
        return None
    way = np.eye(num, dtype=bool)  # way[w, a]: a is w or an ancestor of it
    above = given.copy()
    for _ in range(num):
        going = above >= 0
        if not going.any():
            break
        way[np.flatnonzero(going), above[going]] = True
        above[going] = given[above[going]]
    else:
        return None
    sizes = way.sum(1)
    shared = way.astype(np.int64) @ way.T.astype(np.int64)
    return (sizes[:, None] + sizes[None] - 2 * shared).astype(np.float64), (sizes - 1).astype(np.float64)


def tree_sentence(
    heads: Sequence[int], first_row: int, present: Bool[np.ndarray, " word"], counted: Bool[np.ndarray, " word"]
) -> TreeSentence | None:
    """A sentence whose words occupy the states from `first_row` on; None if its heads do not form one tree."""
    found = tree_distances(heads)
    if found is None:
        return None
    distances, depths = found
    kept = np.flatnonzero(present)
    return TreeSentence(
        rows=first_row + kept,
        distances=distances[np.ix_(kept, kept)],
        depths=depths[kept],
        edges=distances[np.ix_(kept, kept)] == 1,
        counted=counted[kept],
    )


# How well predicted distances and depths recover trees: Spearman, UUAS, root accuracy.


LENGTHS = range(5, 51)  # sentence lengths in words that Spearman's macro-average covers


@dataclass(frozen=True, slots=True, eq=False)
class TreeScores:
    """Scores of each sentence, in order; `spearman` is NaN if no correlation is defined."""

    length: np.ndarray  # words
    spearman: np.ndarray
    """For distances: mean over words of the correlation of predicted and gold rows; for depths: one per sentence."""
    constant: np.ndarray
    """Number of constant rows (one row per word for distances, one for depths), for which no correlation is defined."""
    hits: np.ndarray
    """Number of correct edges in the minimum spanning tree (distances), or 1 if the root is found (depths)."""
    num_edges: np.ndarray  # number of gold edges between words that count, or 1 if the root counts

    @property
    def in_average(self) -> np.ndarray:
        """Mask of the sentences that enter Spearman's average."""
        return np.isfinite(self.spearman) & np.isin(self.length, LENGTHS)


def macro_average(scores: np.ndarray, lengths: np.ndarray, weights: np.ndarray | None = None) -> Any:
    r"""Mean over sentence lengths of the mean over sentences of one length; NaN if there is no sentence.

    Args:
        scores: One per sentence, (sentences,).
        lengths: Sentence lengths, (sentences,).
        weights: How often each sentence is drawn, (replicates, sentences); the result is then (replicates,).
    """
    drawn = np.ones((1, len(scores))) if weights is None else weights
    member = (lengths[:, None] == np.unique(lengths)).astype(np.float64)
    total, counts = (drawn * scores) @ member, drawn @ member
    with np.errstate(invalid="ignore", divide="ignore"):
        means = total / counts
        average = np.nansum(means, axis=1) / np.isfinite(means).sum(1)
    return average if weights is not None else float(average[0])


def distance_scores(sentences: Sequence[TreeSentence], predicted: Sequence[np.ndarray]) -> TreeScores:
    """Scores of predicted distances between words: any numbers that increase with distance.

    Source: [@hewitt2019structural]. Here gold edges count if both of their words do; theirs are the edges of a spanning
    tree over gold distances.
    """
    scores = []
    for sentence, guess in zip(sentences, predicted, strict=True):
        rows = spearman_rows(guess, sentence.distances)
        spearman = np.nanmean(rows) if np.isfinite(rows).any() else np.nan
        gold = sentence.edges[np.ix_(sentence.counted, sentence.counted)]
        found = spanning_tree(guess[np.ix_(sentence.counted, sentence.counted)])
        scores.append((len(sentence), spearman, (~np.isfinite(rows)).sum(), (gold & found).sum() // 2, gold.sum() // 2))
    return TreeScores(*np.array(scores, dtype=np.float64).reshape(-1, 5).T)


def depth_scores(sentences: Sequence[TreeSentence], predicted: Sequence[np.ndarray]) -> TreeScores:
    """Scores of predicted depths.

    The predicted root is the word of smallest depth among those that count; each of m tied words gets 1/m. Sentences
    whose root is punctuation or has no state do not count.

    Source: [@hewitt2019structural].
    """
    scores = []
    for sentence, guess in zip(sentences, predicted, strict=True):
        row = spearman_rows(guess[None], sentence.depths[None])[0]
        rooted = bool(((sentence.depths == 0) & sentence.counted).any())
        least = sentence.counted & (guess == np.where(sentence.counted, guess, np.inf).min(initial=np.inf))
        hit = ((sentence.depths == 0) & least).sum() / least.sum() if rooted else 0.0
        scores.append((len(sentence), row, not np.isfinite(row), hit, rooted))
    return TreeScores(*np.array(scores, dtype=np.float64).reshape(-1, 5).T)


def spanning_tree(distances: Float[np.ndarray, "word word"]) -> Bool[np.ndarray, "word word"]:
    """Edges of the minimum spanning tree, symmetric."""
    from scipy.sparse.csgraph import minimum_spanning_tree  # slow import

    if len(distances) < 2:
        return np.zeros(distances.shape, dtype=bool)
    # An edge of length 0 would be dropped; adding a constant to all edges leaves the spanning tree unchanged.
    shifted = distances - distances.min() + 1.0
    found = minimum_spanning_tree(np.triu(shifted, k=1)).toarray() > 0
    return found | found.T


def chain(length: int) -> np.ndarray:
    """Distances in the tree that attaches each word to its neighbour: the usual parsing baseline."""
    place = np.arange(length, dtype=np.float64)
    return np.abs(place[:, None] - place)


# S seed, P probe (seeds x layers, layers inner), A probe that still trains, B sentence, T word, R rank, D width


Structure = Literal["distance", "depth"]
STRUCTURES = ("distance", "depth")
_HELD = 1 << 24  # numbers in the mapped words of sentences that are only evaluated
STRUCTURAL_SCHEDULE = Schedule(factor=0.1, least=1e-4, epochs=40)
"""Adam at 0.001, times 0.1 after an epoch without a new best; stops after 40 epochs, or 5 without a gain of 1e-4."""


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
    return uniform([stream("structural-probe", seed) for seed in seeds], layers, 0.05, (rank, width))


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
