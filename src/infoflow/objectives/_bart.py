"""BART: the text is corrupted in up to five ways, and the decoder restores it."""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, final

import numpy as np
from transformers import PreTrainedModel

from infoflow.architectures import Layout
from infoflow.corpus import Vocabulary
from infoflow.foundation import Limits, Probability

from ._batch import Batch, Corrupted
from ._encoder_decoder import inner, source_and_target, target_loss
from ._example import Example
from ._loss import LossTerm
from ._masking import mask_id, random_tokens
from ._noise import Noise
from ._objective import AbstractObjective, Family, Writes

Hidden = Literal["span", "token", "none"]
"""Replacement of hidden words.

One [MASK] for a span (text infilling), one for each token (token masking), nothing (token deletion).
"""
MeanLength = Annotated[float, Limits(at_least=0, at_most=100)]
MARK = "sentence_starts"
"""Key of `Example.labels`: Bool for each token, whether a sentence begins there."""


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Bart(AbstractObjective):
    """Denoising; noises apply in the order of the settings.

    Defaults are those of the published model: fairseq issue 1899.

    The paper's mean span is 3.0 ([@lewis2020bart]); fairseq's own defaults disable everything but rotation. Single
    noises: token masking `permute=0, spans=0, leaves="token"`, deletion `permute=0, spans=0, leaves="none"`, infilling
    `permute=0`, sentence permutation `mask=0`, rotation `permute=0, mask=0, rotate=1`.
    """

    name: ClassVar[str] = "bart"
    layout: ClassVar[Layout] = "encoder-decoder"
    family: ClassVar[Family] = "reconstruct"
    writes: ClassVar[Writes] = "text"
    term_weights: ClassVar[dict[str, float]] = {"bart": 1.0}

    permute: Probability = 1.0  # share of the sentences that are permuted
    mask: Probability = 0.3  # share of the words that are hidden; an upper bound, since spans may overlap
    spans: MeanLength = 3.5  # mean length of a span in words (Poisson); 0: every span is one word
    leaves: Hidden = "span"
    random_share: Probability = 0.1  # of the spans: random tokens instead of [MASK]
    insert: Probability = 0.0  # inserted [MASK]s, as a share of the tokens
    rotate: Probability = 0.0  # probability that the text begins at a random token

    @property
    def needs_mask(self) -> bool:
        """Whether words are hidden or masks inserted; sentence permutation needs no mask."""
        return self.mask > 0 or self.insert > 0

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """The text without [CLS] and [SEP], corrupted; the target is the clean text."""
        text = inner(example.text, vocabulary)
        starts = sentence_starts(text, example, vocabulary)
        tokens = permuted(text, starts, self.permute, generator) if self.permute else text
        noisy = np.zeros(len(tokens), dtype=bool)
        if self.mask:
            tokens, noisy = self._hidden(tokens, generator, vocabulary)
        if self.insert:
            tokens, noisy = inserted(
                tokens, noisy, math.ceil(len(tokens) * self.insert), generator, mask_id(vocabulary, self.name)
            )
        if self.rotate and len(tokens) > 1 and generator.random() < self.rotate:
            offset = int(generator.integers(len(tokens)))  # every token may come first, including the first one
            tokens, noisy = np.roll(tokens, -offset), np.roll(noisy, -offset)
        return source_and_target(tokens, text, vocabulary, noisy)

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Cross-entropy of the clean text."""
        return target_loss(self.name, module, batch, label_smoothing)

    def _hidden(
        self, tokens: np.ndarray, generator: np.random.Generator, vocabulary: Vocabulary
    ) -> tuple[np.ndarray, np.ndarray]:
        """Words hidden in spans; empty spans become inserted [MASK]s.

        Overlapping spans leave one [MASK], the first one's, as in fairseq's `add_whole_word_mask`.
        """
        mask, words = mask_id(vocabulary, self.name), np.flatnonzero(vocabulary.word_starts(tokens))
        lengths = span_lengths(math.ceil(len(words) * self.mask), self.spans, generator)
        num_empty = int((lengths == 0).sum()) if self.leaves != "none" else 0
        lengths = lengths[lengths > 0][: len(words)]
        firsts = generator.permutation(len(words))[: len(lengths)]
        heads, ends = words[firsts], np.append(words, len(tokens))[np.minimum(firsts + lengths, len(words))]
        covered, goes_on = covered_by(heads, ends, len(tokens)), covered_by(heads + 1, ends, len(tokens))
        swapped = generator.random(len(lengths)) < self.random_share
        shown_ends = ends if self.leaves == "token" else heads + 1
        random = covered_by(heads[swapped], shown_ends[swapped], len(tokens))
        result = np.where(covered, mask, tokens)
        result[random] = random_tokens(int(random.sum()), generator, vocabulary)
        keep = {"span": ~goes_on, "token": np.ones_like(covered), "none": ~covered}[self.leaves]
        return inserted(result[keep], covered[keep], num_empty, generator, mask)


def covered_by(starts: np.ndarray, ends: np.ndarray, length: int) -> np.ndarray:
    """Bool (token,): whether a token is in one of the spans, which may overlap or be empty."""
    change = np.bincount(starts, minlength=length + 1) - np.bincount(ends, minlength=length + 1)
    return np.cumsum(change)[:length] > 0


def sentence_starts(text: np.ndarray, example: Example, vocabulary: Vocabulary) -> np.ndarray:
    """Bool (token,): where sentences begin: from the example, else after . ! ?"""
    if MARK in example.labels:
        marked = np.asarray(example.labels[MARK], dtype=bool)
        starts = marked[1 : 1 + len(text)].copy()
    else:
        ends = np.isin(text, vocabulary.full_stops)
        starts = np.concatenate([[True], ends[:-1] & ~ends[1:]]) if len(text) else ends
    starts[:1] = True
    return starts


def permuted(text: np.ndarray, starts: np.ndarray, share: float, generator: np.random.Generator) -> np.ndarray:
    """`text` with `ceil(share · n)` of its n sentences randomly permuted."""
    sentences = np.split(text, np.flatnonzero(starts)[1:])
    num = math.ceil(share * len(sentences))
    places = generator.permutation(len(sentences))[:num]
    order = np.arange(len(sentences))
    order[places] = places[generator.permutation(num)]
    return np.concatenate([sentences[index] for index in order]) if len(text) else text


def span_lengths(num_words: int, mean: float, generator: np.random.Generator) -> np.ndarray:
    """Lengths in words, drawn until they add up to `num_words`; the last is cut. A mean of 0 gives one-word spans."""
    if mean == 0 or num_words == 0:
        return np.ones(num_words, dtype=np.int64)
    lengths, total = [], 0
    while total < num_words:
        lengths.append(min(int(generator.poisson(mean)), num_words - total))
        total += lengths[-1]
    return np.array(lengths, dtype=np.int64)


def inserted(
    tokens: np.ndarray, noisy: np.ndarray, num: int, generator: np.random.Generator, mask: int
) -> tuple[np.ndarray, np.ndarray]:
    """Inserts `num` [MASK]s at uniformly random positions."""
    if num == 0:
        return tokens, noisy
    new = np.zeros(len(tokens) + num, dtype=bool)
    new[generator.permutation(len(new))[:num]] = True
    result, marks = np.full(len(new), mask, dtype=np.int64), np.ones(len(new), dtype=bool)
    result[~new], marks[~new] = tokens, noisy
    return result, marks
