"""Attention from word to word, layer by layer, and a few queries at a time in long texts."""

# B sentence, H head, Q query, K key, W word, R words whose rows are complete

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.flow import Activations, AttentionKey, Need

from ._attention_rows import uniform_attention, word_attention
from ._head_measure import SummedMeasure

_SHORT = 256  # tokens up to which products with a matrix of words are faster than sums over the tokens of each word
_AT_A_TIME = 1 << 24  # weights of a longer text that are copied at a time


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WordRows:
    """Complete rows of word attention; the last head is a control with equal weights on all visible keys."""

    first: int  # the word of the first row
    weights: Float[Tensor, "sentence head row word"]
    visible: Bool[Tensor, "sentence row word"]  # the words that each word may attend to

    def holds(self, words: np.ndarray) -> np.ndarray:
        """Mask of the words that have a row here."""
        return (words >= self.first) & (words < self.first + self.weights.shape[2])


class WordAnswers:
    """One layer's answers to an `AbstractWordMeasure`'s questions about a batch, summed over blocks of queries."""

    @abstractmethod
    def add(self, rows: WordRows) -> None:
        """Read further rows."""

    @abstractmethod
    def sums(self) -> dict[str, Float[np.ndarray, "block head *x"]]:
        """The sums of the hits of each head, and of the control as the last head, once all rows have been read."""


@dataclass(slots=True)
class _Layer:
    answers: WordAnswers
    heads: "_Merger"
    control: "_Merger"


class AbstractWordMeasure(SummedMeasure):
    """A statistic of word attention in the stack that reads the corpus's own text, whose words are annotated.

    For each name that `WordAnswers.sums` has, the state holds the sums `name.hits` and `name.uniform` of each layer.
    """

    needs: frozenset[Need] = frozenset({"attention"})
    by_token = True
    subwords = "mean"

    def __init__(self) -> None:
        super().__init__()
        self._stack = ""
        self._asked: Any = None
        self._open: _Layer | None = None
        self._read: dict[int, dict[str, np.ndarray]] = {}

    @abstractmethod
    def ask(self, activations: Activations) -> Callable[[int], WordAnswers] | None:
        """Add the counts and controls of a batch; return what makes the answers of that many heads, or None."""

    def update(self, activations: Activations) -> None:
        key: AttentionKey = (self._stack, "self")
        masks = activations.visible_keys(key) if key in activations.attention else []
        for layer, mask in enumerate(masks):
            own = {"attention": {key: [activations.attention[key][layer]]}, "visible": {key: [mask]}, "mask": (mask,)}
            self.update_block(replace(activations, **own), layer)
        if self._read:
            known = next(iter(self._read.values()))
            none = {name: sums[:, :1] * 0 for name, sums in known.items()}  # no head, and the control
            last = max(*self._read, len(activations.model.anatomy.stack(self._stack).layers) - 1)
            layers = [self._read.get(layer, none) for layer in range(last + 1)]  # hybrid models: some without attention
            for name in known:
                self._add_layers(f"{name}.hits", [sums[name][:, :-1] for sums in layers])
                self._add_layers(f"{name}.uniform", [sums[name][:, -1:] for sums in layers])
        self._asked, self._open, self._read = None, None, {}

    def update_block(self, activations: Activations, layer: int) -> None:
        """Add a layer's attention, or some of its queries in a long text, see `AttentionByBlocks`."""
        key: AttentionKey = (self._stack, "self")
        words = activations.streams[self._stack].words
        if key not in activations.attention or int(words.max()) < 0:
            return
        if self._asked is None:
            self._asked = (self.ask(activations),)
        (answer,) = self._asked
        (weights,), (visible,) = activations.attention[key], activations.visible_keys(key)
        if answer is None:
            return
        start, stop, _ = activations.queries.indices(words.shape[1])
        if start == 0:
            self._open = _Layer(
                answer(weights.shape[1] + 1), _Merger(words, self.subwords), _Merger(words, self.subwords)
            )
        if self._open is None:
            return
        whole = words.shape[1] <= _SHORT
        step = stop - start if whole else max(1, _AT_A_TIME // weights[:, :, :1].numel())
        for begin in range(0, stop - start, step):
            part = slice(begin, min(begin + step, stop - start))
            self._add_rows(activations, key, weights[:, :, part], visible, start, part)
        if stop == words.shape[1]:
            self._read[layer], self._open = self._open.answers.sums(), None

    def _add_rows(
        self,
        activations: Activations,
        key: AttentionKey,
        weights: Float[Tensor, "sentence head query key"],
        visible: Bool[Tensor, "sentence query key"],
        start: int,
        part: slice,
    ) -> None:
        """Add the queries `part` of a block; query `start` of the text is the first row of `visible`."""
        assert self._open is not None
        layer, places = self._open, (start + part.start, start + part.stop)
        _, control = activations.shared(
            (*key, id(self), part.start),
            (visible,),
            lambda: layer.control.rows(uniform_attention(visible[:, part]), *places),
        )
        first, rows = layer.heads.rows(weights.float(), *places)
        merged = torch.cat([rows, control], dim=1)
        layer.answers.add(WordRows(first=first, weights=merged, visible=control.squeeze(1) > 0))


@dataclass(slots=True)
class _Merger:
    """Merges the rows of a matrix, as they come, into those of words; see `word_attention`."""

    words: Int[Tensor, "sentence token"]
    merge: str
    _first: int = 0  # the first word whose row is not complete
    _begun: Tensor | None = field(default=None)  # the parts of rows that have been read, from that word on

    def rows(
        self, weights: Float[Tensor, "sentence head query key"], start: int, stop: int
    ) -> tuple[int, Float[Tensor, "sentence head row word"]]:
        """The word of the first row, and all rows that are complete with the queries `start`..`stop`."""
        if stop - start == self.words.shape[1] <= _SHORT:
            return 0, word_attention(weights, self.words, self.merge)
        num = int(self.words.max()) + 1
        by_key = sum_of_parts(weights.permute(0, 3, 1, 2).flatten(2), self.words, num)
        by_query = by_key.unflatten(2, weights.shape[1:3]).permute(0, 3, 2, 1)  # sentence, query, head, word
        own, first = self.words[:, start:stop], self._first
        if self.merge == "first":
            before = torch.cat([self.words.new_full((len(own), 1), -1), self.words[:, :-1]], dim=1)[:, start:stop]
            own = own.masked_fill(own == before, -1)
        size = max(int(own.max()) + 1 - first, 0 if self._begun is None else self._begun.shape[1])
        parts = sum_of_parts(by_query.flatten(2), torch.where(own < 0, own, own - first), size)
        parts = parts.unflatten(2, by_query.shape[2:])
        if self._begun is not None:
            parts[:, : self._begun.shape[1]] += self._begun
        later = self.words[:, stop:]
        self._first = int(later.masked_fill(later < 0, num).amin()) if later.shape[1] else num
        done = min(self._first - first, size)
        self._begun = parts[:, done:].clone()
        if self.merge == "mean":
            tokens = sum_of_parts(torch.ones_like(self.words, dtype=parts.dtype).unsqueeze(2), self.words, num)
            parts = parts[:, :done] / tokens[:, first : first + done].unsqueeze(3).clamp(min=1)
        return first, parts[:, :done].transpose(1, 2)


def sum_of_parts(
    values: Float[Tensor, "sentence part x"], whole: Int[Tensor, "sentence part"], num: int
) -> Float[Tensor, "sentence whole x"]:
    """Sums over the parts of each of `num` wholes; −1: the part belongs to none."""
    start = torch.arange(len(whole), device=whole.device).unsqueeze(1) * num
    place = torch.where(whole < 0, len(whole) * num, whole + start)
    sums = values.new_zeros(len(whole) * num + 1, values.shape[2])
    return sums.index_add_(0, place.flatten(), values.flatten(0, 1))[:-1].unflatten(0, (len(whole), num))


def words_with(tokens: Bool[Tensor, "sentence token"], words: Int[Tensor, "sentence token"]) -> np.ndarray:
    """(sentence, word) mask of the words that have one of the tokens."""
    found = sum_of_parts(tokens.float().unsqueeze(2), words, int(words.max()) + 1)
    return (found.squeeze(2) > 0).cpu().numpy()
