"""The corpus in one model's encoding: rows, batches by length, padded streams."""

# B sentence, T token

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache

import numpy as np
import torch

from infoflow._transformers import PreTrainedModel, PreTrainedTokenizerBase
from infoflow.corpus import (
    NOT_A_WORD,
    Corpus,
    Encoded,
    Side,
    Vocabulary,
    length_batches,
    token_frequencies,
    tokenizer_digest,
)
from infoflow.foundation import UserError, running_word_spans, stream
from infoflow.models import Model, decoder_inputs
from infoflow.objectives import AbstractObjective, Corrupted, MaskedLM

from ._input import (
    PROBED_SHARE,
    NoisySentence,
    ProbingNoise,
    Row,
    clean_row,
    corrupt_text,
    padded_stream,
    ranks_of,
    symbol_ids,
)
from ._occurrences import tagged_words
from ._sample import NO_LABEL, PaddedBatch, Regime

_NOISY_SENTENCES = 1 << 18
"""Number of corrupted sentences kept in memory (about 120 MB), since each is needed more than once.

All passes of training noise over 9,000 short sentences are 144,000; a smaller cache would corrupt each of them twice.
"""


class Reader:
    """Encodes a corpus for one model, once, and serves it in padded batches."""

    def __init__(
        self,
        model: Model,
        corpus: Corpus,
        *,
        max_length: int,
        seed: int,
        decoder: bool,
        white_space_words: bool = False,
        ranks_from: Corpus | None = None,
        corruption: AbstractObjective | None = None,
        decoder_side: Side = "translation",
        word_spans: Callable[[str], Sequence[tuple[int, int]]] = running_word_spans,
        where: tuple[str, str] | None = None,
    ) -> None:
        tokenizer = model.require_tokenizer()
        if len(corpus) == 0:
            raise UserError(f"The corpus {corpus.name} has no sentences: there is nothing to measure.")
        self.model, self.corpus, self.seed = model, corpus, seed
        self._corruption = (corruption or MaskedLM()).on_text()  # a masked LM's if the model's own is unknown
        self.decoder_side: Side = decoder_side
        self.source_stack = model.anatomy.reads.name
        longest = max_length if model.max_tokens is None else min(max_length, model.max_tokens)
        self._source = corpus.encode(tokenizer, side="text", max_length=longest)
        _check_vocabulary(self._source, model.module, model.name)
        self._target = None
        if decoder:
            longest = max_length if model.max_target_tokens is None else min(max_length, model.max_target_tokens)
            self._target = corpus.encode(self.tokenizer("decoder"), side=decoder_side, max_length=longest)
            _check_vocabulary(self._target, model.module.get_decoder(), f"the decoder of {model.name}")
        if not (self._shorter > 0).any():
            raise UserError(f"No sentence of {corpus.name} has a token for {model.name}: there is nothing to measure.")
        self._wanted = None if where is None else tagged_words(corpus, *where, decoder=decoder)
        self._white_space_words = white_space_words and "words" not in corpus.columns
        self._word_spans = word_spans
        self._ranks_from, self._max_length = ranks_from, max_length
        self._noise: Callable[[int, int], NoisySentence] | None = None

    def tokenizer(self, stack: str) -> PreTrainedTokenizerBase:
        """The tokenizer of the stack's input."""
        own = self.model.target_tokenizer
        return own if own is not None and stack != self.source_stack else self.model.require_tokenizer()

    def tokenizer_digest(self, stack: str) -> str:
        """Digest of everything that determines the stack's tokenization."""
        return tokenizer_digest(self.tokenizer(stack))

    @property
    def has_target(self) -> bool:
        """Whether the decoder has an input: the corpus's translations, or the text again."""
        return self._target is not None

    @property
    def no_target(self) -> str:
        """The reason why the decoder has no input."""
        if self.decoder_side == "text":
            return "its decoder was trained on parts of texts, and a whole text does not show which"
        if "translation" in self.corpus.columns:
            return "nothing was given for its decoder to read"
        return (
            f"its decoder needs translations to read, and {self.corpus.name} has none. Give a parallel corpus: two "
            "files, or one .tsv of two columns"
        )

    def num_tokens(self, rows: np.ndarray) -> int:
        """Tokens in these rows, including special tokens but not padding."""
        target = 0 if self._target is None else int(self._target.lengths[rows].sum())
        return int(self._source.lengths[rows].sum()) + target

    @cached_property
    def frequencies(self) -> dict[str, np.ndarray]:
        """How often each token id occurs in the corpus, by stack; special tokens excluded."""
        sides = {self.source_stack: self._source}
        if self._target is not None:
            sides["decoder"] = self._target
        counts = {}
        for stack, encoded in sides.items():
            tokenizer = self.tokenizer(stack)
            size = max(len(tokenizer), 1 + max(tokenizer.get_vocab().values()))
            counts[stack] = token_frequencies(encoded, size)
        return counts

    def symbols(self, stack: str) -> tuple[int, ...]:
        """Token ids of the stack's text without any letter or digit: punctuation."""
        return symbol_ids(self.tokenizer(stack), np.flatnonzero(self.frequencies[stack]))

    @property
    def counted(self) -> Corpus:
        """The corpus for token frequencies: the model's training corpus if it is known, otherwise this one."""
        return self._ranks_from or self.corpus

    def counted_rows(self, stack: str) -> Encoded:
        """The corpus for token frequencies in the encoding of the stack."""
        side: Side = "text" if stack == self.source_stack else self.decoder_side
        return self.counted.encode(self.tokenizer(stack), side=side, max_length=self._max_length)

    @cached_property
    def ranks(self) -> dict[str, np.ndarray]:
        """Frequency rank of each token id by stack: 1 = most frequent, 0 = never seen.

        Frequencies are counted on the corpus `counted`.
        """
        counts = self.frequencies
        if self._ranks_from is not None:
            counts = {stack: token_frequencies(self.counted_rows(stack), len(own)) for stack, own in counts.items()}
        return {stack: ranks_of(count) for stack, count in counts.items()}

    def use_training_noise(self, top_types: int) -> None:
        """Prepare regime "training", whose replacements come from the `top_types` most frequent tokens."""
        frequent = np.argsort(-self.frequencies[self.source_stack], kind="stable")[:top_types]
        frequent = frequent[self.frequencies[self.source_stack][frequent] > 0]
        noise = ProbingNoise(self._corruption, self._vocabulary, frequent, self.seed)
        texts, ids = self._source, self.corpus.content_ids
        self._noise = lru_cache(_NOISY_SENTENCES)(lambda row, draw: noise(texts.row(row), draw, int(ids[row])))

    @property
    def probed_share(self) -> float:
        """Approximate share of the tokens that one pass of training noise replaces."""
        return PROBED_SHARE * self.predicted_share

    @property
    def predicted_share(self) -> float:
        """Approximate share of a masked LM's input tokens that it predicts."""
        return self._corruption.predicted_share

    @cached_property
    def counted_share(self) -> float:
        """Share of the words that have the requested tag; 1 if all tokens count."""
        return 1.0 if self._wanted is None else float(np.concatenate(self._wanted).mean())

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        vocabulary = Vocabulary.from_tokenizer(self.model.require_tokenizer())
        if not self._corruption.needs_counts:
            return vocabulary
        return vocabulary.with_counts(token_frequencies(self.counted_rows(self.source_stack), vocabulary.size))

    def corrupted(self, tokens: np.ndarray, *key: int | str) -> Corrupted:
        """A sentence as the model read it in training; the noise is a function of `key`."""
        return corrupt_text(self._corruption, tokens, stream(*key), self._vocabulary)

    def corrupted_batch(self, batch: PaddedBatch, *key: int | str) -> PaddedBatch:
        """The text of a batch, alone, as the model read it in training, with the tokens to predict.

        The noise of a sentence is a function of (`key`, sentence id), so all measures and variants with this key share
        it.
        """
        source = batch.streams[self.source_stack]
        inputs, labels = source.input_ids.numpy().copy(), np.full(source.input_ids.shape, NO_LABEL)
        for index, (sentence, real) in enumerate(zip(batch.sentence_ids.tolist(), source.real.numpy(), strict=True)):
            noisy = self.corrupted(inputs[index, real], *key, sentence)
            inputs[index, real], labels[index, real] = noisy.input_ids, noisy.labels
        labels[~source.counted.numpy()] = NO_LABEL
        source = replace(source, input_ids=torch.from_numpy(inputs), labels=torch.from_numpy(labels))
        return replace(batch, streams={self.source_stack: source})

    def draws_for(self, occurrences: int) -> int:
        """Number of passes of training noise expected to yield `occurrences` occurrences."""
        tokens = self.counted_share * int(self.frequencies[self.source_stack].sum())
        return math.ceil(1.3 * occurrences / (self.probed_share * tokens))

    def batches(self, token_budget: int, rows: np.ndarray | None = None) -> list[np.ndarray]:
        """These rows (default: `rows`) in batches, by length of the longer side."""
        rows = self.rows if rows is None else rows
        batches = length_batches(self._lengths[rows], token_budget)
        return [rows[batch] for batch in self.even(rows, batches)]

    @cached_property
    def rows(self) -> np.ndarray:
        """Rows of sentences with tokens, in an order that depends only on their texts (`Corpus.content_ids`)."""
        rows = np.flatnonzero(self._shorter > 0)
        return rows[np.argsort(self.corpus.content_ids[rows], kind="stable")]

    def of_rows(self, rows: np.ndarray) -> "Reader":
        """The same reader with these `rows` alone; counts and ranks stay those of the corpus."""
        copied = copy.copy(self)
        copied.rows = rows
        return copied

    def replaced(self, rows: np.ndarray, draw: int) -> np.ndarray:
        """The rows in which this pass of training noise replaces a token to predict with another token of text."""
        return rows[[self._noisy(row, draw).replaces for row in rows.tolist()]]

    def even(self, rows: np.ndarray, batches: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The batches unchanged, or split by length if padding affects the model's results.

        `rows` are rows of the corpus, each repeated as often as it is read; a batch holds indices into them.
        """
        if self.model.pads:
            return list(batches)
        sides = [self._source.lengths[rows], *([] if self._target is None else [self._target.lengths[rows]])]
        pieces = []
        for batch in batches:
            ordered = batch[np.lexsort([side[batch] for side in sides])]
            changes = np.any([np.diff(side[ordered]) != 0 for side in sides], axis=0)
            pieces += np.split(ordered, np.flatnonzero(changes) + 1)
        return pieces

    @cached_property
    def _lengths(self) -> np.ndarray:
        """Tokens of each sentence, on its longer side."""
        lengths = self._source.lengths
        return lengths if self._target is None else np.maximum(lengths, self._target.lengths)

    @cached_property
    def _shorter(self) -> np.ndarray:
        lengths = self._source.lengths
        return lengths if self._target is None else np.minimum(lengths, self._target.lengths)

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        """Tokens of each of these rows, on its longer side."""
        return self._lengths[rows]

    def longest(self, rows: np.ndarray) -> int:
        """Padded length of a batch of these rows."""
        return int(self._lengths[rows].max())

    def sentence_rows(self, row: int, regime: Regime, draw: int) -> dict[str, Row]:
        """One sentence for every stack."""
        tokens, special = self._source.row(row), self._source.special(row)
        words, counted = self._words(self._source, row), np.ones(len(tokens), dtype=bool)
        if self._wanted is not None:
            counted = np.append(self._wanted[row], False)[self._source.words(row)]  # −1: no word
        if regime == "training":
            noisy = self._noisy(row, draw)
            inputs, labels = noisy.tokens
            corrupted = Row(
                tokens=inputs,
                clean=tokens,
                labels=np.where(counted, labels, NO_LABEL),
                special=special,
                words=words,
                counted=counted,
                probes=noisy.probes[counted[noisy.probes]],
            )
            return {self.source_stack: corrupted}
        labels = np.full(len(tokens), NO_LABEL)
        if self.source_stack == "decoder":
            labels[:-1] = np.where((tokens[1:] < self.model.num_outputs) & counted[1:], tokens[1:], NO_LABEL)
        rows = {self.source_stack: clean_row(tokens, labels, special, words, counted)}
        if self._target is not None:
            rows["decoder"] = self._target_row(row)
        return rows

    def _noisy(self, row: int, draw: int) -> NoisySentence:
        assert self._noise is not None, "use_training_noise comes first"
        return self._noise(row, draw)

    def _words(self, encoded: Encoded, row: int) -> np.ndarray:
        """The word of each token: the corpus's own words, or running words if different tokenizers are compared."""
        if encoded.flat_words is None:
            return np.full(int(encoded.lengths[row]), NOT_A_WORD)
        if not (self._white_space_words and encoded is self._source):
            return encoded.words(row)
        return np.where(encoded.special(row), NOT_A_WORD, self._word_ranges(row)[:, 0])

    def _word_ranges(self, row: int) -> np.ndarray:
        """The first and the last running word that overlaps each token: int (token, 2)."""
        starts = [start for start, _ in self._word_spans(self.corpus[row].text)]
        first, last = self._source.spans(row).T
        found = np.searchsorted(starts, first, side="right"), np.searchsorted(starts, last, side="left")
        return np.maximum(np.stack(found, axis=1) - 1, 0)

    def covered_words(self, row: int) -> dict[int, int]:
        """Words in which no token begins, mapped to the earlier word whose token covers them.

        In scripts without spaces a token may cover several words.
        """
        if not self._white_space_words or self._source.flat_words is None:
            return {}
        ranges = self._word_ranges(row)[~self._source.special(row)]
        begun = set(ranges[:, 0].tolist())
        return {
            word: first for first, last in ranges.tolist() for word in range(first + 1, last + 1) if word not in begun
        }

    def characters(self, row: int, position: int) -> tuple[int, int]:
        """Start and end of a text token in its sentence's characters.

        It is (0, 0) if the tokenizer does not report characters, or the token is special.
        """
        if self._source.flat_spans is None or bool(self._source.special(row)[position]):
            return 0, 0
        start, end = (int(place) for place in self._source.spans(row)[position])
        return start, end

    def _target_row(self, row: int) -> Row:
        """The decoder's row: input is the start token and the target without its last token, labels are the target."""
        assert self._target is not None
        tokens, special = self._target.row(row), self._target.special(row)
        words = self._words(self._target, row)
        inputs, labels = (
            ids[0].numpy() for ids in decoder_inputs(self.model, torch.from_numpy(tokens.astype(np.int64))[None])
        )
        if len(labels) < len(tokens):
            return clean_row(inputs, labels, special[:-1], words[:-1])
        shifted_words = np.concatenate([[NOT_A_WORD], words[:-1]])
        return clean_row(inputs, labels, np.concatenate([[True], special[:-1]]), shifted_words)

    def _pad(self, stack: str) -> int:
        pad = self.tokenizer(stack).pad_token_id
        return self.model.pad_token_id if pad is None else pad

    def padded(self, rows: np.ndarray, regime: Regime = "clean", draw: int = 0) -> PaddedBatch:
        """The sentences `rows` as right-padded tensors; of one length if padding affects results (see `even`)."""
        sentences = [self.sentence_rows(int(row), regime, draw) for row in rows]
        streams = {
            stack: padded_stream([sentence[stack] for sentence in sentences], self._pad(stack))
            for stack in sentences[0]
        }
        if not self.model.pads and not all(stream.real.all() for stream in streams.values()):
            raise UserError(
                f"Padding changes what {self.model.name} computes for a sentence, so it cannot read sentences of "
                "different lengths together. Leave this measure out."
            )
        ids = self.corpus.content_ids[rows]
        return PaddedBatch(rows=rows, lines=self.corpus.ids[rows], sentence_ids=ids, streams=streams)


def _check_vocabulary(encoded: Encoded, module: PreTrainedModel, name: str) -> None:
    """Raise a UserError if a token has no embedding, since the tokenizer belongs to another model."""
    found = getattr(module, "get_input_embeddings", None)  # FSMT's decoder has none
    table = getattr(found and found(), "weight", None)
    if table is None or encoded.num_tokens == 0:
        return
    if (largest := int(encoded.flat_ids.max())) >= (rows := len(table)):
        raise UserError(
            f"The tokenizer must give token ids below {rows:,}, since {name} has as many embeddings. Got {largest:,}.\n"
            "Give the tokenizer that the model was trained with (--tokenizer), or enlarge its embeddings "
            "(resize_token_embeddings) and train them."
        )
