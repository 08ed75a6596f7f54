"""Activity counts of all neurons in one pass over a corpus, in memory that does not grow with the corpus."""

# G group of bootstrap blocks, N token of a batch, F neuron, P bin of positions, K kept token, U token type of a batch

from collections.abc import Iterator
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.flow import PaddedBatch, PassOptions, Reader, Stream, forward
from infoflow.foundation import block_of, current_display
from infoflow.foundation import stream as random_stream

from ._activity import FeedForward, feed_forward_parts, watched
from ._kinds import LEAST

GROUPS = 8
"""Number of groups of 8 bootstrap blocks. Each has its own counts, so error bars come from leaving out one group."""
CANDIDATES = 16
"""Number of most frequent tokens of a neuron that may be its triggers."""
KEPT = 32
"""Number of tokens held for each neuron and group."""
ORDERS = (1, 2, 3)
"""Numbers of tokens in an n-gram that a neuron may detect."""
_BUCKETS = 1 << 22  # of hashed n-grams: rare ones, which no neuron can detect, are not counted
_SINGLE = 64  # number of first positions with a bin each
_PER_OCTAVE = 8  # number of bins for each doubling of the position above `_SINGLE`


def position_bin(position: Int[np.ndarray, "*any"]) -> Int[np.ndarray, "*any"]:
    """Bin of each position: each position below 64 has its own bin, and each doubling above that has eight bins.

    >>> position_bin(np.array([0, 63, 64, 71, 72, 127, 128, 512])).tolist()
    [0, 63, 64, 64, 65, 71, 72, 88]
    """
    above = np.maximum(position, _SINGLE)
    octave = np.floor(np.log2(above / _SINGLE)).astype(np.int64)
    inside = (above - (_SINGLE << octave)) * _PER_OCTAVE // (_SINGLE << octave)
    return np.where(position < _SINGLE, position, _SINGLE + octave * _PER_OCTAVE + inside)


class TokenCounts:
    r"""How often the most frequent tokens (or n-grams) of each neuron activate it, in Misra–Gries counters.

    A counter is never above the true number, and is below it by at most `lost`, where

    $$ (K + 1)\, \mathrm{lost} \le n - \sum_k c_k $$

    for a neuron that was active n times. So all counts are exact if at most K tokens activate a neuron, and a token
    that makes up more than 1 / (K + 1) of the activations is always held.

    Source: [@misra1982]; batches are merged as in [@agarwal2012].
    """

    def __init__(self, groups: int, neurons: int, kept: int = KEPT) -> None:
        self.ids = torch.full((groups, kept, neurons), -1, dtype=torch.int64)
        self.counts = torch.zeros((groups, kept, neurons), dtype=torch.int32)
        self.lost = torch.zeros((groups, neurons), dtype=torch.int32)

    def add(self, group: int, tokens: Int[Tensor, " token"], active: Bool[Tensor, "token neuron"]) -> None:
        """Add the tokens of a batch."""
        types, place = tokens.unique(return_inverse=True)
        fresh_UF = _sums(place, active, len(types) + 1)  # the last row is 0: for tokens not in the batch
        ids_KF, counts_KF = self.ids[group], self.counts[group]
        if len(types) == 0:
            return
        at_KF = torch.searchsorted(types, ids_KF).clamp(max=len(types) - 1)
        at_KF = torch.where(types[at_KF] == ids_KF, at_KF, len(types))
        counts_KF += fresh_UF.gather(0, at_KF)
        fresh_UF.scatter_(0, at_KF, 0)
        all_ids = torch.cat([ids_KF, types[:, None].expand(-1, active.shape[1])])
        best = torch.cat([counts_KF, fresh_UF[:-1]]).topk(len(ids_KF) + 1, dim=0)
        lost_F = best.values[-1]
        self.counts[group] = best.values[:-1] - lost_F
        self.ids[group] = all_ids.gather(0, best.indices[:-1]).masked_fill(self.counts[group] == 0, -1)
        self.lost[group] += lost_F

    def by_group(self, most: int) -> tuple[Int[Tensor, "kept neuron"], Int[Tensor, "group kept neuron"]]:
        """The `most` most frequent tokens of each neuron over all groups, and their counts in each group."""
        num_groups, kept, neurons = self.ids.shape
        ids_XF, order_XF = self.ids.reshape(-1, neurons).sort(0)
        counts_XF = self.counts.reshape(-1, neurons).gather(0, order_XF)
        starts_XF = torch.ones_like(ids_XF, dtype=torch.bool)
        starts_XF[1:] = ids_XF[1:] != ids_XF[:-1]
        run_XF = starts_XF.cumsum(0) - 1
        slot_XF = order_XF // kept * len(ids_XF) + run_XF
        sums = torch.zeros(num_groups * len(ids_XF), neurons, dtype=torch.int32).scatter_add_(0, slot_XF, counts_XF)
        names_XF = torch.full_like(ids_XF, -1).scatter_(0, run_XF, ids_XF)
        sums_GXF = sums.unflatten(0, (num_groups, -1))
        best_KF = sums_GXF.sum(0).topk(min(most, len(ids_XF)), dim=0).indices
        return names_XF.gather(0, best_KF), sums_GXF.gather(1, best_KF.expand(num_groups, -1, -1))


def _sums(place: Int[Tensor, " token"], active: Bool[Tensor, "token neuron"], size: int) -> Int[Tensor, "row neuron"]:
    """Number of active tokens in each of `size` rows; exact for batches below 2²⁴ tokens."""
    return torch.zeros(size, active.shape[1]).index_add_(0, place, active.float()).to(torch.int32)


class ActivityCounts:
    """The activity of one layer's neurons, by token, n-gram and position."""

    def __init__(self, groups: int, bins: int, neurons: int) -> None:
        self.ngrams = {order: TokenCounts(groups, neurons) for order in ORDERS}
        self.positions = torch.zeros((groups, bins, neurons), dtype=torch.int32)
        self.written = torch.zeros(neurons, dtype=torch.float64)
        """Sum of each neuron's activations where it is active, as they are written."""

    def add_positions(self, group: int, bins: Int[Tensor, " token"], active: Bool[Tensor, "token neuron"]) -> None:
        self.positions[group] += _sums(bins, active, self.positions.shape[1])

    @property
    def active(self) -> Int[Tensor, "group neuron"]:
        """How often each neuron was active."""
        return self.positions.sum(1)


@dataclass(kw_only=True, slots=True, eq=False)
class StackCounts:
    """The activity of all neurons of a stack, and the tokens that it read."""

    layers: dict[int, ActivityCounts] = field(default_factory=dict)
    controls: dict[int, ActivityCounts] = field(default_factory=dict)
    """The control, over a single group: the same activity with shuffled tokens of the batch, and with the position of
    another occurrence of the same token."""
    frequencies: Int[Tensor, "group type"]
    ngrams: "dict[int, NgramFrequencies]" = field(default_factory=dict)
    positions: Int[Tensor, "group bin"]
    control_positions: Int[Tensor, " bin"]

    @classmethod
    def empty(cls, types: int, longest: int) -> "StackCounts":
        bins = int(position_bin(np.array(longest))) + 1
        sizes = ((GROUPS, types), (GROUPS, bins), (bins,))
        frequencies, positions, control = (torch.zeros(size, dtype=torch.int64) for size in sizes)
        return cls(frequencies=frequencies, positions=positions, control_positions=control)

    def add(self, batch: "_Tokens") -> None:
        """Add the tokens of a batch."""
        self.frequencies[batch.group] += batch.tokens.bincount(minlength=self.frequencies.shape[1])
        self.positions[batch.group] += batch.bins.bincount(minlength=self.positions.shape[1])
        self.control_positions += batch.bins[batch.repeated].bincount(minlength=self.positions.shape[1])

    def add_layer(
        self, layer: int, batch: "_Tokens", active: Bool[Tensor, "place neuron"], written: Float[Tensor, "place neuron"]
    ) -> None:
        """Add one layer at all positions of a batch."""
        kept = active[batch.valid].cpu()
        if layer not in self.layers:
            sizes = self.positions.shape[1], kept.shape[1]
            self.layers[layer], self.controls[layer] = ActivityCounts(GROUPS, *sizes), ActivityCounts(1, *sizes)
        self.layers[layer].written += (written * active)[batch.valid].sum(0, dtype=torch.float64).cpu()
        for counts, group, shuffled in ((self.layers[layer], batch.group, False), (self.controls[layer], 0, True)):
            for order in ORDERS:
                counts.ngrams[order].add(group, *batch.ngrams(order, kept, shuffled))
        self.layers[layer].add_positions(batch.group, batch.bins, kept)
        self.controls[layer].add_positions(0, batch.bins[batch.repeated], kept[batch.others])


@dataclass(frozen=True, slots=True, eq=False)
class _Tokens:
    """The ordinary tokens of one stack in a batch, and how they are shuffled."""

    group: int
    valid: Bool[Tensor, " place"]
    tokens: Int[Tensor, " token"]
    bins: Int[Tensor, " token"]
    order: Int[Tensor, " token"]
    repeated: Int[Tensor, " shared"]
    """Places of tokens that occur several times in the batch."""
    others: Int[Tensor, " shared"]
    """For each of these places, another occurrence of the same token."""
    frequent: dict[int, tuple[Int[Tensor, " token"], Bool[Tensor, " token"]]]
    """By order above 1: the n-gram that ends at each token, and whether it may be frequent enough to be a trigger."""

    def ngrams(
        self, order: int, active: Bool[Tensor, "token neuron"], shuffled: bool
    ) -> tuple[Int[Tensor, " place"], Bool[Tensor, "place neuron"]]:
        """The n-grams to count and the activity there, or that of other places."""
        if order == 1:
            return self.tokens[self.order] if shuffled else self.tokens, active
        ids, may = (each[self.order] if shuffled else each for each in self.frequent[order])
        return ids[may], active[may]

    @classmethod
    def of(
        cls, group: int, stream: Stream, random: np.random.Generator, types: int, frequent: "dict[int, Buckets]"
    ) -> "_Tokens":
        valid = (stream.valid & stream.counted).flatten()
        tokens, position = (x.flatten()[valid].cpu() for x in (stream.input_ids, stream.position))
        order = random.permutation(len(tokens))
        repeated, others = other_occurrences(tokens.numpy(), order)
        arrays = position_bin(position.numpy()), order, repeated, others
        ngrams = {length: ngram_ids(stream, types, length) for length in frequent}
        may = {length: (ids, frequent[length].may_reach(ids, LEAST)) for length, ids in ngrams.items()}
        return cls(group, valid, tokens, *map(torch.from_numpy, arrays), may)


def ngram_ids(stream: Stream, types: int, order: int) -> Int[Tensor, " token"]:
    """The id of the n-gram that ends at each counted ordinary token: its tokens as digits, the last one lowest.

    The base is the number of token types plus 1. The highest digit stands for whatever precedes the first ordinary
    token of a text.
    """
    tokens = torch.where(stream.valid, stream.input_ids, types).cpu()
    ids = tokens.clone()
    for back in range(1, order):
        before = torch.full_like(tokens, types)
        before[:, back:] = tokens[:, :-back]
        ids += before * (types + 1) ** back
    return ids.flatten()[(stream.valid & stream.counted).flatten().cpu()]


def ngram_tokens(ngram: int, types: int) -> list[int]:
    """The tokens of an n-gram, in the order of the text; a text's beginning is left out.

    >>> ngram_tokens(7 + 5 * 11, 10), ngram_tokens(7 + 10 * 11, 10)
    ([5, 7], [7])
    """
    digits = []
    while ngram:
        ngram, digit = divmod(ngram, types + 1)
        digits.append(digit)
    return [digit for digit in reversed(digits) if digit < types]


class Buckets:
    """Numbers of n-grams by a hash, which are never too low."""

    def __init__(self) -> None:
        self._counts = torch.zeros(_BUCKETS, dtype=torch.int32)

    def add(self, ids: Int[Tensor, " token"]) -> None:
        at = self._of(ids)
        self._counts.scatter_add_(0, at, torch.ones_like(at, dtype=torch.int32))

    def may_reach(self, ids: Int[Tensor, " token"], least: int) -> Bool[Tensor, " token"]:
        return self._counts[self._of(ids)] >= least

    def _of(self, ids: Int[Tensor, " token"]) -> Int[Tensor, " token"]:
        mixed = (ids ^ (ids >> 29)) * 0x9E3779B97F4A7C1  # odd, so that all bits of an id matter
        return (mixed >> 20) % _BUCKETS


class NgramFrequencies:
    """Occurrences of the n-grams that activate some neuron most often, exact, by group."""

    def __init__(self, candidates: Int[Tensor, " ngram"]) -> None:
        self.ids = candidates.unique()
        self.counts = torch.zeros((GROUPS, len(self.ids)), dtype=torch.int64)

    def add(self, group: int, ids: Int[Tensor, " token"]) -> None:
        at = self.index(ids)
        self.counts[group] += at[at >= 0].bincount(minlength=len(self.ids))

    def index(self, ids: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
        """The place of each n-gram in `ids`; −1: it is none of them."""
        if len(self.ids) == 0:
            return torch.full_like(ids, -1)
        at = torch.searchsorted(self.ids, ids).clamp(max=len(self.ids) - 1)
        return torch.where(self.ids[at] == ids, at, -1)


def other_occurrences(
    tokens: Int[np.ndarray, " token"], order: Int[np.ndarray, " token"]
) -> tuple[Int[np.ndarray, " shared"], Int[np.ndarray, " shared"]]:
    """The places of tokens that occur several times, and for each of them the next place of its token in `order`.

    >>> other_occurrences(np.array([7, 5, 7, 7]), np.array([3, 1, 0, 2]))
    (array([3, 0, 2]), array([0, 2, 3]))
    """
    places = order[np.argsort(tokens[order], kind="stable")]
    _, starts, sizes = np.unique(tokens[places], return_index=True, return_counts=True)
    following = np.arange(len(places)) + 1
    following[starts + sizes - 1] = starts
    shared = np.repeat(sizes > 1, sizes)
    return places[shared], places[following[shared]]


class Counted:
    """Everything counted in a pass over a corpus, by stack."""

    def __init__(self, reader: Reader, options: PassOptions) -> None:
        self.parts = feed_forward_parts(reader.model)
        self.stacks: dict[str, StackCounts] = {}
        jobs = list(_jobs(reader, options))
        total = int(sum(reader.num_tokens(rows) for _, rows in jobs))
        self._frequent = self._buckets(reader, jobs)
        with current_display().progress(f"Neurons of {reader.model.name}", total, "tokens") as progress:
            for number, (group, rows) in enumerate(jobs):
                random = random_stream("neurons", options.seed, number)
                self._read(reader, reader.padded(rows).to(reader.model.device), group, random)
                progress.advance(reader.num_tokens(rows))
        self._count_ngrams(reader, jobs)

    def _buckets(self, reader: Reader, jobs: list[tuple[int, np.ndarray]]) -> dict[str, dict[int, Buckets]]:
        found: dict[str, dict[int, Buckets]] = {}
        for _, rows in jobs:
            for name, stream in reader.padded(rows).streams.items():
                of_stack = found.setdefault(name, {order: Buckets() for order in ORDERS[1:]})
                for order, buckets in of_stack.items():
                    buckets.add(ngram_ids(stream, len(reader.frequencies[name]), order))
        return found

    def _count_ngrams(self, reader: Reader, jobs: list[tuple[int, np.ndarray]]) -> None:
        """Count how often the n-grams that activate neurons most occur at all."""
        for stack in self.stacks.values():
            layers = [*stack.layers.values(), *stack.controls.values()]
            for order in ORDERS[1:]:
                ids = torch.cat([counts.ngrams[order].by_group(CANDIDATES)[0].flatten() for counts in layers])
                stack.ngrams[order] = NgramFrequencies(ids[ids >= 0])
        for group, rows in jobs:
            for name, stream in reader.padded(rows).streams.items():
                for order, frequencies in self.stacks[name].ngrams.items():
                    frequencies.add(group, ngram_ids(stream, len(reader.frequencies[name]), order))

    def _read(self, reader: Reader, batch: PaddedBatch, group: int, random: np.random.Generator) -> None:
        given = {
            name: _Tokens.of(group, stream, random, len(reader.frequencies[name]), self._frequent[name])
            for name, stream in batch.streams.items()
        }
        for name, tokens in given.items():
            if name not in self.stacks:
                longest = reader.longest(reader.rows) + 1
                self.stacks[name] = StackCounts.empty(len(reader.frequencies[name]), longest)
            self.stacks[name].add(tokens)
        parts = [part for part in self.parts if part.stack in batch.streams]

        def show(part: FeedForward, active: Tensor, written: Tensor) -> None:
            self.stacks[part.stack].add_layer(part.layer, given[part.stack], active, written)

        with torch.inference_mode(), watched(reader.model, parts, show):
            forward(reader.model, batch)

    def part(self, stack: str, layer: int) -> FeedForward:
        return next(part for part in self.parts if (part.stack, part.layer) == (stack, layer))


def _jobs(reader: Reader, options: PassOptions) -> Iterator[tuple[int, np.ndarray]]:
    """Batches of sentences of one group."""
    groups = block_of(reader.corpus.content_ids[reader.rows]) % GROUPS
    for group in range(GROUPS):
        rows = reader.rows[groups == group]
        for batch in reader.batches(options.tokens_per_batch, rows) if len(rows) else []:
            yield group, batch


_COUNTED: WeakKeyDictionary[Reader, tuple[PassOptions, Counted]] = WeakKeyDictionary()


def counted(reader: Reader, options: PassOptions) -> Counted:
    """The counts of this corpus, made once for all measures of neurons."""
    found = _COUNTED.get(reader)
    if found is None or found[0] != options:
        found = options, Counted(reader, options)
        _COUNTED[reader] = found
    return found[1]
