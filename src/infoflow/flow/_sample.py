"""The activations of a batch, and the token sample: states of a bounded set of occurrences, the same for all models."""

# B sentence, T token (padded), D width, H head, d head width, Q query, K key

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from infoflow.corpus import NOT_A_WORD
from infoflow.foundation import UserError, block_of
from infoflow.models import Model, keys_stack
from infoflow.results import Column

from ._occurrences import Occurrences, RankStrata, Tag, first_of_each, rank_bins

T = TypeVar("T")
Need = Literal["hidden", "attention", "heads"]
"""What a measure needs from a pass: states, attention weights, or the outputs of heads."""
Regime = Literal["clean", "training"]
"""Sentences as they are, or corrupted as in the model's own training."""
AttentionKey = tuple[str, str]
"""(stack, kind): ("encoder", "self"), ("decoder", "cross")."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Stream:
    """The tokens that one stack reads, as the model sees them (after corruption in the training regime)."""

    input_ids: Int[Tensor, "sentence token"]
    real: Bool[Tensor, "sentence token"]
    """False at padding."""
    valid: Bool[Tensor, "sentence token"]
    """False at padding and special tokens; the default mask of measures."""
    counted: Bool[Tensor, "sentence token"]
    """True at all tokens, or only at tokens with the requested tag (`PassOptions.where`)."""
    labels: Int[Tensor, "sentence token"]
    """The token to predict, or −100 where nothing is predicted.

    It is the next token (causal LM, decoders) or the original one (masked LM in the training regime).
    """
    position: Int[Tensor, "sentence token"]
    """0 for a sentence's first real token, on either padding side; −1 at padding."""
    words: Int[Tensor, "sentence token"]
    """Index of the word a token belongs to; −1 for special tokens and padding."""

    def part(self, tokens: slice) -> "Stream":
        """These tokens of every sentence."""
        return Stream(**{one.name: getattr(self, one.name)[:, tokens] for one in fields(self)})


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PaddedBatch:
    """Rows of the corpus, right-padded, for every stack that is run."""

    rows: np.ndarray
    lines: np.ndarray  # row of each sentence in the original corpus, for messages
    sentence_ids: np.ndarray  # `Corpus.content_ids`
    streams: Mapping[str, Stream]

    @property
    def blocks(self) -> torch.Tensor:
        return torch.from_numpy(block_of(self.sentence_ids))

    def to(self, device: torch.device) -> "PaddedBatch":
        """The same batch on another device."""
        if device.type == "cpu":
            return self
        streams = {
            stack: replace(stream, **{f.name: getattr(stream, f.name).to(device) for f in fields(stream)})
            for stack, stream in self.streams.items()
        }
        return replace(self, streams=streams)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, weakref_slot=True)
class Activations:
    """One batch. Stacks are "encoder" and "decoder"; states are numbered 0..L, blocks and heads from 0."""

    model: Model
    regime: Regime
    sentence_ids: np.ndarray
    """(B,) `Corpus.content_ids`: stable, and independent of the order of the corpus's lines."""
    blocks: Int[Tensor, " sentence"]
    """Bootstrap block of each sentence, 0..63: accumulate sums per block (see `foundation.block_of`)."""
    streams: Mapping[str, Stream]
    hidden: Mapping[str, list[Tensor]] = field(default_factory=dict)
    """stack → L+1 tensors (B, T, D): embeddings, then each block's output."""
    attention: Mapping[AttentionKey, list[Tensor]] = field(default_factory=dict)
    """(stack, kind) → L tensors (B, H, Q, K), rows sum to 1; they include pad queries and keys: use `streams[...]`."""
    visible: Mapping[AttentionKey, list[Tensor]] = field(default_factory=dict)
    """(stack, kind) → L masks (B, Q, K): the keys visible to each query; see `visible_keys`."""
    heads: Mapping[AttentionKey, list[Tensor]] = field(default_factory=dict)
    """(stack, kind) → L tensors (B, T, H, d): the input of the output projection."""
    queries: slice = field(default_factory=lambda: slice(None))
    """The queries that `attention` and `visible` hold: all, except in long texts (see `AttentionByBlocks`)."""
    mask: tuple[Any, ...] = ()
    """Objects from which the mask of the layer in `visible` was made: layers with the same objects have the same."""
    _made: dict[tuple[Any, ...], tuple[tuple[Any, ...], Any]] = field(default_factory=dict)

    def shared(self, key: tuple[Any, ...], sources: tuple[Any, ...], make: Callable[[], T]) -> T:
        """`make()`, called once for these queries, a key and source objects: what measures and layers have in common.

        Copies for single layers share it too. The sources are kept with it, so that no other object gets their ids.
        """
        name = (*key, *map(id, sources))
        if name not in self._made:
            self._made[name] = (sources, make())
        return self._made[name][1]

    def queries_stream(self, key: AttentionKey) -> Stream:
        """The attending tokens."""
        return self.streams[key[0]].part(self.queries)

    def keys_stream(self, key: AttentionKey) -> Stream:
        """The attended tokens: the encoder's for cross-attention, else the stack's own."""
        return self.streams[keys_stack(*key)]

    def visible_keys(self, key: AttentionKey) -> list[Bool[Tensor, "sentence query key"]]:
        """The keys visible to each query in each layer, under the model's own mask and without padding.

        Without `visible`: all real tokens, except later ones in a causal stack's self-attention.
        """
        stack, kind = key
        queries, keys = self.queries_stream(key), self.keys_stream(key)
        real = keys.real.unsqueeze(1).expand(-1, queries.real.shape[1], -1)
        if key in self.visible:
            masks = self.visible[key]
            return [
                self.shared((key, self.queries.start), (mask,), partial(torch.logical_and, mask, real))
                for mask in masks
            ]
        if kind == "self" and self.model.anatomy.stack(stack).causal:
            real = real & (keys.position.unsqueeze(1) <= queries.position.unsqueeze(2))
        return [real] * max(1, len(self.attention.get(key, ())))


# The token sample: individual states of a bounded set of occurrences, the same for every model and order of batches.
#
# The selection depends only on tokens, before any model runs: each occurrence has the hash of (seed, sentence id,
# word), and the lowest hashes are taken. The text determines a sentence's id. So a smaller sample is the beginning of a
# larger one, and neither the order of lines or batches nor the number of shards or processes matters. The states then
# fill a memory-mapped file.


NO_LABEL = -100
"""The label of a position where nothing is predicted, as in torch."""
MERGES = ("mean", "first", "last")
STATES = "states.npy"
_OCCURRENCES, _TYPES, _TAGS, _FACTS = "occurrences.npz", "types.npz", "tags.npz", "facts.json"
_OF_TYPES = ("frequencies", "ranks")

SAMPLE_COLUMNS = (
    Column("tokens_requested", "int64", "tokens", "requested size of the sample, or all tokens of a shorter text"),
    Column("tokens_kept", "int64", "tokens", "number of these that fit the byte budget of the sample (sample_bytes)"),
)
"""Columns of tables that are based on a plain token sample."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleRequest:
    """A measure's request for the sample; the runner serves all requests from one sample."""

    occurrences: int = 20_000
    """Maximum number of tokens; a small corpus or byte budget yields fewer."""
    top_types: int | None = None
    """Regime "training" draws the replacements from this many of the most frequent types."""
    strata: RankStrata | None = None
    """Strata whose occurrences are served instead of `occurrences` random ones."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SampleFacts:
    """Facts that measures need in addition to the states."""

    model: str
    stack: str  # "encoder" or "decoder"
    regime: Regime
    task: str  # the model's task, see `Model.task`
    seed: int
    tokenizer: str  # digest, equal for models that read the same tokens
    frequencies: np.ndarray  # (vocabulary,) int64: how often each token id occurs in the corpus
    ranks: np.ndarray  # (vocabulary,) int64: 1 = most frequent (in training, if known), 0 = never seen
    symbols: tuple[int, ...] = ()  # ids of the corpus's tokens without letter or digit: punctuation
    uniform: int | None = None  # length of the plain random sample, which strata follow; None: all rows
    selected: int | None = None  # size of the plain sample before the byte budget cut it; None: not cut


class TokenSample:
    """Occurrences and their states in every layer of one stack, memory-mapped on disk."""

    def __init__(
        self,
        occurrences: Occurrences,
        states: np.ndarray,  # (L+1, m, D) float32, m ≥ n
        facts: SampleFacts,
        rows: np.ndarray | None = None,  # (n,) the rows of `states` in this sample; default: all of the m rows
        tags: Mapping[str, Tag] | None = None,
    ) -> None:
        self.occurrences, self.facts, self.tags = occurrences, facts, dict(tags or {})
        self._states, self._rows = states, np.arange(len(occurrences)) if rows is None else rows

    def __len__(self) -> int:
        return len(self.occurrences)

    @property
    def num_states(self) -> int:
        """Number of layers of states: L+1 with the embeddings."""
        return len(self._states)

    @property
    def width(self) -> int:
        return self._states.shape[2]

    @property
    def blocks(self) -> np.ndarray:
        """(n,) bootstrap block of each occurrence."""
        return block_of(self.occurrences.sentence)

    def states(self, layer: int) -> np.ndarray:
        """(n, D) float32 states of one layer, 0..L."""
        return np.asarray(self._states[layer][self._rows])

    def take(self, index: np.ndarray) -> "TokenSample":
        """The sample of the selected rows (indices or a mask); states stay on disk until read."""
        tags = {name: tag.take(index) for name, tag in self.tags.items()}
        return TokenSample(self.occurrences.take(index), self._states, self.facts, self._rows[index], tags)

    def sizes(self, request: SampleRequest, other: "TokenSample | None" = None) -> dict[str, int]:
        """The columns of `SAMPLE_COLUMNS` for a measure with this request; of two samples, the smaller one counts."""
        kept = len(self) if self.facts.uniform is None else self.facts.uniform
        selected = kept if self.facts.selected is None else self.facts.selected
        found = {"tokens_requested": min(request.occurrences, selected), "tokens_kept": min(request.occurrences, kept)}
        return found if other is None else min(found, other.sizes(request), key=lambda sizes: sizes["tokens_kept"])

    def save(self, folder: Path) -> None:
        """Write the remaining data next to the states, so that `load` finds the whole sample in `folder`."""
        np.savez(folder / _OCCURRENCES, **{f.name: getattr(self.occurrences, f.name) for f in fields(Occurrences)})
        np.savez(folder / _TYPES, **{name: getattr(self.facts, name) for name in _OF_TYPES})
        np.savez(folder / _TAGS, **{name: tag.codes for name, tag in self.tags.items()})
        plain = {f.name: getattr(self.facts, f.name) for f in fields(SampleFacts) if f.name not in _OF_TYPES}
        names = {name: tag.names for name, tag in self.tags.items()}
        (folder / _FACTS).write_text(json.dumps({"facts": plain, "tags": names}), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "TokenSample":
        """A sample that `save` completed; states stay on disk until read."""
        with np.load(folder / _OCCURRENCES, allow_pickle=False) as columns:
            occurrences = Occurrences(**columns)
        plain = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
        with np.load(folder / _TYPES, allow_pickle=False) as columns:
            facts = SampleFacts(**plain["facts"] | {"symbols": tuple(plain["facts"]["symbols"])}, **columns)
        with np.load(folder / _TAGS, allow_pickle=False) as codes:
            tags = {name: Tag(codes=codes[name], names=tuple(names)) for name, names in plain["tags"].items()}
        return cls(occurrences, np.load(folder / STATES, mmap_mode="r"), facts, tags=tags)

    def first(self, num: int) -> "TokenSample":
        """The first `num` occurrences, as a smaller request would have drawn."""
        return self if num >= len(self) else self.take(np.arange(num))

    def serve(self, request: SampleRequest) -> "TokenSample":
        """The part of the sample for `request`."""
        if request.strata is None:
            uniform = self.facts.uniform
            plain = self if uniform is None else self.take(np.flatnonzero(self._rows < uniform))
            return plain.first(request.occurrences)
        strata = request.strata.of(self.ranks)
        return self.take(np.flatnonzero(first_of_each(strata, request.strata.per_bin)))

    @property
    def ranks(self) -> np.ndarray:
        """(n,) frequency rank of each occurrence's token; 0 if unknown."""
        return self.facts.ranks[self.occurrences.token]

    def rank_bins(self, edges: Sequence[int]) -> np.ndarray:
        """(n,) bin of each occurrence's token: i where edges[i] ≤ rank < edges[i+1], −1 elsewhere."""
        return rank_bins(self.ranks, tuple(edges))

    def words(self, merge: str = "mean") -> "TokenSample":
        """One row per word whose tokens are all in the sample, in sampling order.

        States are those of the first or last token, or their mean; all other columns are those of the first token. With
        a slow tokenizer, which does not report words, tokens replace words.
        """
        if merge not in MERGES:
            raise UserError(f'words are merged by "mean", "first" or "last" subword. Got {merge}.')
        at = self.occurrences
        if len(self) == 0 or (at.word == NOT_A_WORD).all():
            return self
        rows = np.flatnonzero(at.word != NOT_A_WORD)
        keys = np.stack([at.draw[rows], at.sentence[rows], at.word[rows]])
        order = np.lexsort((at.subword[rows], *keys))
        rows, keys = rows[order], keys[:, order]
        starts = np.flatnonzero(np.concatenate([[True], (keys[:, 1:] != keys[:, :-1]).any(axis=0)]))
        groups = [group for group in np.split(rows, starts[1:]) if len(group) == at.subwords[group[0]]]
        groups.sort(key=lambda group: int(group.min()))
        if merge != "mean":
            return self.take(np.array([group[0 if merge == "first" else -1] for group in groups], dtype=np.int64))
        return WordSample(self, np.array([group[0] for group in groups], dtype=np.int64), groups)


class WordSample(TokenSample):
    """A sample of words with the mean state of their tokens; the states of the tokens stay in one file on disk."""

    def __init__(self, tokens: TokenSample, first: np.ndarray, parts: list[np.ndarray]) -> None:
        super().__init__(
            tokens.occurrences.take(first),
            tokens._states,
            tokens.facts,
            tokens._rows[first],
            {name: tag.take(first) for name, tag in tokens.tags.items()},
        )
        self._tokens, self._first, self._parts = tokens, first, parts

    def states(self, layer: int) -> np.ndarray:
        """(n, D) float32 mean states of one layer, 0..L."""
        if not self._parts:
            return super().states(layer)
        rows = np.concatenate(self._parts)
        lengths = np.array([len(part) for part in self._parts])
        states = np.asarray(self._states[layer][self._tokens._rows[rows]])
        starts = np.concatenate([[0], lengths.cumsum()[:-1]])
        return np.add.reduceat(states, starts, axis=0) / lengths[:, None].astype(np.float32)

    def take(self, index: np.ndarray) -> "WordSample":
        index = np.arange(len(self))[index]
        return WordSample(self._tokens, self._first[index], [self._parts[i] for i in index])
