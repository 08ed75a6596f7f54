"""States of all words in every layer, from one pass that all probes share, and the probes' inputs made from them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable
from weakref import WeakKeyDictionary, finalize

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int
from torch import Tensor

from infoflow.corpus import NOT_A_WORD, Corpus, length_batches
from infoflow.flow import PassOptions, Reader, Stream, check_finite, forward
from infoflow.foundation import UserError, current_display, digest, hash64_array, new_scratch_folder, reserve_space
from infoflow.models import Model, tap

from ._questions import Examples

Pooling = Literal["mean", "first", "last"]
"""How a word's state is formed: the mean over its tokens, or the first or last token."""
POOLINGS = ("mean", "first", "last")
_STATES = "states.npy"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WordFeatures:
    """States of the words of some sentences in all layers of one stack, memory-mapped."""

    states: Float32[np.ndarray, "word state width"]  # 0 for a word that is not `present`
    sentences: Int[np.ndarray, " sentence"]  # rows of the corpus, in ascending order
    starts: Int[np.ndarray, " end"]
    """The words of sentence s of `sentences` are rows starts[s]:starts[s + 1] of `states`."""
    present: Bool[np.ndarray, " word"]
    """False for a word without tokens: cut off at the end of a long sentence, or dropped by the tokenizer."""
    stack: str

    @property
    def num_states(self) -> int:
        """Number of layers of states: L+1 with the embeddings."""
        return self.states.shape[1]

    @property
    def width(self) -> int:
        return self.states.shape[2]

    def rows(self, index: Int[np.ndarray, " chosen"]) -> Float32[np.ndarray, "chosen state width"]:
        """States 0..L of the chosen words."""
        return np.asarray(self.states[index])

    def holds(self, sentence: Int[np.ndarray, " example"]) -> Bool[np.ndarray, " example"]:
        """Whether these rows of the corpus are in `sentences`, which has all requested rows that fit the budget."""
        return np.isin(sentence, self.sentences)

    def spans(
        self, sentence: Int[np.ndarray, " example"], span: Int[np.ndarray, "example 2"]
    ) -> tuple[Int[np.ndarray, " example"], Int[np.ndarray, " example"]]:
        """First row of the words [start, end) of stored sentences, and the row after their last."""
        at = np.searchsorted(self.sentences, sentence)
        assert self.holds(sentence).all(), "ask `holds` first"
        lengths = self.starts[at + 1] - self.starts[at]
        wrong = (span[:, 0] < 0) | (span[:, 0] >= span[:, 1]) | (span[:, 1] > lengths)
        if wrong.any():
            first = int(np.flatnonzero(wrong)[0])
            raise UserError(
                f"A span must lie within the words 0..{lengths[first]} of its sentence and hold at least one. Got "
                f"[{span[first, 0]}, {span[first, 1]}) in sentence {sentence[first]}. Give each word one label."
            )
        return self.starts[at] + span[:, 0], self.starts[at] + span[:, 1]

    def kept(self, examples: Examples) -> Bool[np.ndarray, " example"]:
        """Which examples can be used: those whose sentences are stored, and whose spans lost no word."""
        kept = self.holds(examples.sentence)
        absent = np.concatenate([[0], np.cumsum(~self.present)])
        for span in examples.spans:
            if kept.any():
                chosen = np.flatnonzero(kept)
                first, end = self.spans(examples.sentence[chosen], span[chosen])
                kept[chosen] = absent[end] == absent[first]
        return kept


def collect_features(
    model: Model,
    corpus: Corpus,
    rows: Int[np.ndarray, " row"],
    *,
    folder: Path,
    pooling: Pooling = "mean",
    options: PassOptions | None = None,
) -> WordFeatures:
    """Run the frozen model once over these sentences; the states of their words go to a file in `folder`.

    Words are the corpus's own, or else those of running text. The file takes at most `options.sample_bytes`. The
    sentences that fit are chosen by hash, so a larger budget only adds sentences, and a note reports how many there
    are. The result depends neither on batches nor on padding.

    Args:
        model: A model with a fast tokenizer, or any model if the corpus has words.
        corpus: Corpus to read.
        rows: Rows of the corpus.
        folder: An empty folder; it must outlive the features.
        pooling: How several tokens become the state of a word.
        options: Seed, maximum length, size of batches, byte budget.

    Raises:
        UserError: `rows` is empty, the tokenizer does not report words, a state is not finite, or no sentence fits.
    """
    if pooling not in POOLINGS:
        raise UserError(f"pooling must be one of {', '.join(POOLINGS)}. Got {pooling}.")
    if len(rows) == 0:
        raise UserError(f"A probe needs sentences. Got none of {corpus.name}.")
    options = options or PassOptions()
    reader = _reader(model, corpus, options)
    stack = model.anatomy.stack(reader.source_stack)
    shape = (len(stack.layers) + 1, stack.width)
    counts = corpus.word_counts
    sentences = _affordable(corpus, np.unique(rows), counts, 4 * shape[0] * shape[1], options)
    starts = np.concatenate([[0], np.cumsum(counts[sentences])])
    states = np.lib.format.open_memmap(folder / _STATES, mode="w+", dtype=np.float32, shape=(int(starts[-1]), *shape))
    reserve_space(folder / _STATES)
    present = np.zeros(len(states), dtype=bool)
    _fill(reader, sentences, starts, states, present, pooling, options)
    states.flush()
    return WordFeatures(states=states, sentences=sentences, starts=starts, present=present, stack=stack.name)


def _reader(model: Model, corpus: Corpus, options: PassOptions) -> Reader:
    reader = Reader(
        model, corpus, max_length=options.max_length, seed=options.seed, decoder=False, white_space_words=True
    )
    first = reader.sentence_rows(int(reader.rows[0]), "clean", 0)[reader.source_stack]
    if not first.special.all() and (first.words == NOT_A_WORD).all():
        raise UserError(
            f"The tokenizer of {model.name} is slow and does not say which word a token belongs to, so running text "
            "cannot be probed word by word. Load the model with a fast tokenizer, or give a corpus of words (CoNLL-U)."
        )
    return reader


def _affordable(
    corpus: Corpus, rows: np.ndarray, counts: np.ndarray, word_bytes: int, options: PassOptions
) -> Int[np.ndarray, " sentence"]:
    """The sentences whose states fit the byte budget: chosen by hash, in ascending order."""
    ordered = rows[np.argsort(hash64_array(("probe-features", options.seed), corpus.content_ids[rows]), kind="stable")]
    fits = np.cumsum(counts[ordered]) * word_bytes <= options.sample_bytes
    if not fits.any():
        raise UserError(
            f"sample_bytes must hold the states of a sentence: {int(counts[ordered[0]]) * word_bytes:,} bytes. Got "
            f"{options.sample_bytes:,}. Raise it."
        )
    if not fits.all():
        current_display().note(
            f"Probes read {int(fits.sum()):,} of {len(rows):,} sentences of {corpus.name} (the byte budget)."
        )
    return np.sort(ordered[fits])


def _fill(
    reader: Reader,
    sentences: np.ndarray,
    starts: np.ndarray,
    states: np.ndarray,
    present: np.ndarray,
    pooling: Pooling,
    options: PassOptions,
) -> None:
    """Read the sentences that have tokens, batch by batch."""
    model, stack = reader.model, reader.source_stack
    place = np.flatnonzero(np.isin(sentences, reader.rows))
    chosen = sentences[place]
    lengths = np.array([reader.longest(chosen[[index]]) for index in range(len(chosen))])
    batches = reader.even(chosen, length_batches(lengths, options.tokens_per_batch))
    with (
        current_display().progress(f"Reading states of {model.name}", len(chosen), "sentences") as progress,
        tap(model, hidden=True) as tapped,
        torch.inference_mode(),
    ):
        for index in batches:
            batch = reader.padded(chosen[index])
            batch = replace(batch, streams={stack: batch.streams[stack]}).to(model.device)
            forward(model, batch)
            check_finite(model, tapped.hidden, batch)
            words, pooled = _pooled(batch.streams[stack], starts[place[index]], tapped.hidden[stack], pooling)
            states[words], present[words] = pooled, True
            progress.advance(len(index))
    for start, row in zip(starts[place], chosen, strict=True):
        for word, first in reader.covered_words(int(row)).items():
            states[start + word], present[start + word] = states[start + first], present[start + first]


def _pooled(
    stream: Stream, starts: np.ndarray, hidden: list[Tensor], pooling: Pooling
) -> tuple[Int[np.ndarray, " word"], Float32[np.ndarray, "word state width"]]:
    """The words of a batch, as rows of the features, and their states."""
    in_words = (stream.valid & (stream.words != NOT_A_WORD)).cpu()
    tokens = in_words.flatten().nonzero()[:, 0]
    of_token = (torch.from_numpy(starts)[:, None] + stream.words.cpu())[in_words]
    words, number, counts = torch.unique(of_token, return_inverse=True, return_counts=True)
    number, tokens, counts = (part.to(hidden[0].device) for part in (number, tokens, counts))
    if pooling != "mean":
        order = torch.arange(len(tokens), device=tokens.device)
        at = torch.zeros_like(counts).scatter_reduce(
            0, number, order, "amin" if pooling == "first" else "amax", include_self=False
        )
        tokens = tokens[at]
    layers = []
    for state in hidden:
        picked = state.flatten(0, 1)[tokens].float()
        if pooling == "mean":
            sums = torch.zeros(len(counts), picked.shape[1], device=picked.device).index_add_(0, number, picked)
            picked = sums / counts[:, None]
        layers.append(picked)
    return words.numpy(), torch.stack(layers, dim=1).cpu().numpy()


_KEPT: "WeakKeyDictionary[Reader, tuple[str, WordFeatures]]" = WeakKeyDictionary()


def shared_features(
    reader: Reader, corpus: Corpus, rows: np.ndarray, pooling: Pooling, options: PassOptions
) -> WordFeatures:
    """`collect_features` in a temporary file; the latest features of the reader's corpus are kept with the reader."""
    key = digest([corpus.digest, np.unique(rows).tolist(), pooling, options.key])
    kept = _KEPT.get(reader)
    if kept is not None and kept[0] == key:
        return kept[1]
    folder, remove = new_scratch_folder()
    try:
        features = collect_features(reader.model, corpus, rows, folder=folder, pooling=pooling, options=options)
    except BaseException:
        remove()
        raise
    finalize(features.states, remove)
    if corpus.digest == reader.corpus.digest:
        _KEPT[reader] = key, features
    return features


# N example, L blocks, E width of an input, P probe, O order, B batch


_HELD = 1 << 29  # bytes of inputs kept in memory; larger inputs are read again from their source
_CHUNK = 1 << 26  # bytes of inputs read at a time


@runtime_checkable
class InputRows(Protocol):
    """Inputs of examples in all layers: an array (example, layer, width), or an object indexed the same way."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __getitem__(self, index: Any, /) -> Any: ...


class LayerInputs:
    """Inputs of examples, computed on demand.

    A span is the mean of its words' states, a pair is [first; second; first × second].

    Source: [@liu2019linguistic], for pairs.
    """

    def __init__(self, features: WordFeatures, examples: Examples) -> None:
        self._features = features
        self._spans = [features.spans(examples.sentence, span) for span in examples.spans]
        width = features.width * (3 if len(self._spans) == 2 else 1)
        self.shape = (len(examples), features.num_states, width)

    def __getitem__(self, index: Int[np.ndarray, " chosen"]) -> Float32[np.ndarray, "chosen state input"]:
        parts = [self._means(first[index], end[index]) for first, end in self._spans]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([*parts, parts[0] * parts[1]], axis=2)

    def _means(self, first: np.ndarray, end: np.ndarray) -> np.ndarray:
        lengths = end - first
        if (lengths == 1).all():
            return self._features.rows(first)
        before = np.cumsum(lengths) - lengths
        words = np.arange(int(lengths.sum())) + np.repeat(first - before, lengths)
        sums = np.add.reduceat(self._features.rows(words), before, axis=0)
        return sums / lengths[:, None, None].astype(np.float32)


class ChosenRows:
    """Some of the rows, in the order of their index."""

    def __init__(self, rows: InputRows, index: Int[np.ndarray, " chosen"]) -> None:
        self._rows, self._index = rows, index
        self.shape = (len(index), *rows.shape[1:])

    def __getitem__(self, index: Int[np.ndarray, " chosen"]) -> np.ndarray:
        return self._rows[self._index[index]]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scaling:
    """Mean and standard deviation of every input in every layer, over the training examples."""

    mean: Float32[np.ndarray, "layer width"]
    spread: Float32[np.ndarray, "layer width"]  # 1 where all training examples are equal

    @classmethod
    def of(cls, rows: InputRows) -> "Scaling":
        num, sums, squares = rows.shape[0], 0.0, 0.0
        shift = np.asarray(rows[np.arange(1)], dtype=np.float64)  # sums of squares of numbers far from 0 lose digits
        for index in chunks(rows):
            values = np.asarray(rows[index], dtype=np.float64) - shift
            sums, squares = sums + values.sum(0), squares + (values**2).sum(0)
        mean = sums / num
        spread = np.sqrt(np.maximum(squares / num - mean**2, 0))
        mean = mean + shift[0]
        constant = spread <= 1e-6 * (1 + np.abs(mean))
        return cls(mean=mean.astype(np.float32), spread=np.where(constant, 1, spread).astype(np.float32))


class ProbeInputs:
    """Scaled inputs on the training device; stored there if they are few, otherwise computed each time."""

    def __init__(self, rows: InputRows, scaling: Scaling, device: torch.device, held: int | None = None) -> None:
        self._rows, self._device = rows, device
        self._mean, self._spread = (torch.from_numpy(part).to(device) for part in (scaling.mean, scaling.spread))
        self._held: Float[Tensor, "layer example width"] | None = None
        num, layers, width = rows.shape
        if 4 * num * layers * width <= (_HELD if held is None else held):
            self._held = torch.empty((layers, num, width), device=device)
            for index in chunks(rows):
                self._held[:, index[0] : index[-1] + 1] = self._read(index).transpose(0, 1)

    def __len__(self) -> int:
        return self._rows.shape[0]

    def batch(
        self, index: Int[np.ndarray, "order batch"], order: Int[Tensor, " probe"], layer: Int[Tensor, " probe"]
    ) -> Float[Tensor, "probe batch width"]:
        """The next examples of each probe, in its order and its layer."""
        if self._held is None:
            read = self._read(index.reshape(-1)).unflatten(0, index.shape)
            return read[order, :, layer]
        places = torch.from_numpy(index).to(self._device)[order] + (layer * len(self))[:, None]
        return self._held.flatten(0, 1).index_select(0, places.flatten()).unflatten(0, places.shape)

    def all(self, layer: Int[Tensor, " probe"], most: int) -> Iterator[Float[Tensor, "probe part width"]]:
        """All examples in order, at each probe's layer, at most `most` at a time."""
        for start in range(0, len(self), most):
            end = min(start + most, len(self))
            if self._held is None:
                yield self._read(np.arange(start, end)).transpose(0, 1).index_select(0, layer)
            else:
                yield self._held[:, start:end].index_select(0, layer)

    def _read(self, index: np.ndarray) -> Float[Tensor, "chosen layer width"]:
        states = torch.from_numpy(np.ascontiguousarray(self._rows[index], dtype=np.float32)).to(self._device)
        return (states - self._mean) / self._spread


def chunks(rows: InputRows) -> Iterator[Int[np.ndarray, " chosen"]]:
    """Indices of all examples in order, in chunks of bounded size in bytes."""
    num, layers, width = rows.shape
    size = max(1, _CHUNK // max(1, 4 * layers * width))
    for start in range(0, num, size):
        yield np.arange(start, min(start + size, num))
