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

GROUPS = 8
"""Number of groups of 8 bootstrap blocks. Each has its own counts, so error bars come from leaving out one group."""
KEPT = 32
"""Number of tokens held for each neuron and group."""
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
    r"""How often the most frequent tokens of each neuron activate it, in Misra–Gries counters.

    A counter is never above the true number, and is below it by at most `lost`, where

    $$ (K + 1)\, \mathrm{lost} \le n - \sum_k c_k $$

    for a neuron that was active n times. So all counts are exact if at most K tokens activate a neuron, and a token
    that makes up more than 1 / (K + 1) of the activations is always held.

    Source: [@misra1982]; batches are merged as in [@agarwal2012].
    """

    def __init__(self, groups: int, neurons: int, kept: int = KEPT) -> None:
        self.ids = torch.full((groups, kept, neurons), -1, dtype=torch.int32)
        self.counts = torch.zeros((groups, kept, neurons), dtype=torch.int32)
        self.lost = torch.zeros((groups, neurons), dtype=torch.int32)

    def add(self, group: int, tokens: Int[Tensor, " token"], active: Bool[Tensor, "token neuron"]) -> None:
        """Add the tokens of a batch."""
        types, place = tokens.unique(return_inverse=True)
        fresh_UF = _sums(place, active, len(types) + 1)  # the last row is 0: for tokens not in the batch
        ids_KF, counts_KF = self.ids[group], self.counts[group]
        at_KF = torch.searchsorted(types, ids_KF.long()).clamp(max=len(types) - 1)
        at_KF = torch.where(types[at_KF] == ids_KF, at_KF, len(types))
        counts_KF += fresh_UF.gather(0, at_KF)
        fresh_UF.scatter_(0, at_KF, 0)
        all_ids = torch.cat([ids_KF, types.to(torch.int32)[:, None].expand(-1, active.shape[1])])
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
    """The activity of one layer's neurons, by token and by position."""

    def __init__(self, groups: int, bins: int, neurons: int) -> None:
        self.tokens = TokenCounts(groups, neurons)
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
        self.layers[layer].tokens.add(batch.group, batch.tokens, kept)
        self.layers[layer].add_positions(batch.group, batch.bins, kept)
        self.controls[layer].tokens.add(0, batch.tokens[batch.order], kept)
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

    @classmethod
    def of(cls, group: int, stream: Stream, random: np.random.Generator) -> "_Tokens":
        valid = stream.valid.flatten()
        tokens, position = (x.flatten()[valid].cpu() for x in (stream.input_ids, stream.position))
        order = random.permutation(len(tokens))
        repeated, others = other_occurrences(tokens.numpy(), order)
        arrays = position_bin(position.numpy()), order, repeated, others
        return cls(group, valid, tokens, *map(torch.from_numpy, arrays))


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
        with current_display().progress(f"Neurons of {reader.model.name}", total, "tokens") as progress:
            for number, (group, rows) in enumerate(jobs):
                random = random_stream("neurons", options.seed, number)
                self._read(reader, reader.padded(rows).to(reader.model.device), group, random)
                progress.advance(reader.num_tokens(rows))

    def _read(self, reader: Reader, batch: PaddedBatch, group: int, random: np.random.Generator) -> None:
        given = {name: _Tokens.of(group, stream, random) for name, stream in batch.streams.items()}
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
