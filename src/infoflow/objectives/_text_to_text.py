"""T5's family of denoising objectives: one encoder-decoder, and eight methods to make input and target from a text."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, final

import numpy as np

from infoflow.corpus import Vocabulary
from infoflow.foundation import Limits, Probability, UserError

from ._batch import Corrupted, Example
from ._encoder_decoder import AbstractEncoderDecoder, inner, source_and_target
from ._masking import random_tokens
from ._objective import Family, Writes


# T5's noise: the choice of tokens to remove, and the notation for the remaining and the removed tokens.
#
# Masks are Bool (token,) over a text without special tokens. Source: [@raffel2020exploring], functions of the released
# `t5.data.preprocessors`.
def iid_mask(length: int, density: float, generator: np.random.Generator) -> np.ndarray:
    """Make each token noise with probability `density`; there may be no noise."""
    return generator.random(length) < density


def span_mask(length: int, density: float, mean_length: float, generator: np.random.Generator) -> np.ndarray:
    """Draw spans of noise with a fixed number and mean length, so only the cuts are random (`random_spans_noise_mask`).

    Of the L tokens, `nn = clip(round(L · density), 1, L − 1)` are noise, in `ns = max(round(nn / mean_length), 1)`
    spans. The noise and the rest are each cut into `ns` parts uniformly at random, and parts of the rest come first, so
    the first token is never noise and the last always is. A text of one token is treated as the first of two.
    """
    whole = max(length, 2)
    num_noise, num_spans = span_numbers(whole, density, mean_length)
    noise = _composition(num_noise, num_spans, generator)
    rest = _composition(whole - num_noise, num_spans, generator)
    mask = np.zeros(whole, dtype=bool)
    lengths = np.stack([rest, noise], axis=1).ravel()
    starts = np.cumsum(lengths)[:-1]
    mask[starts] = True  # boundaries between noise and rest
    return (np.cumsum(mask) % 2 == 1)[:length]


def span_numbers(length: int, density: float, mean_length: float) -> tuple[int, int]:
    """The numbers of noise tokens and of noise spans in `length` (at least 2) tokens."""
    num_noise = min(max(round(length * density), 1), length - 1)
    num_spans = max(round(num_noise / mean_length), 1)
    if num_spans > length - num_noise:
        raise UserError(
            f"{num_spans} spans of noise need at least {num_spans} other tokens to separate them. Got "
            f"{length - num_noise} among {length} tokens.\nLower the density, or raise the mean length of spans."
        )
    return num_noise, num_spans


def run_starts(mask: np.ndarray) -> np.ndarray:
    """Bool (token,): whether a run of True values begins there."""
    firsts = mask.copy()
    firsts[1:] &= ~mask[:-1]
    return firsts


def with_sentinels(tokens: np.ndarray, mask: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """`tokens` with each run of `mask` replaced by its own sentinel, in order."""
    firsts = run_starts(mask)
    num_runs = int(firsts.sum())
    if num_runs > len(vocabulary.sentinels):
        raise UserError(
            f"A text with {num_runs} spans of noise needs {num_runs} sentinel tokens (<extra_id_0>, ...). Got a "
            f"vocabulary with {len(vocabulary.sentinels)}.\nAdd them to the tokenizer, or use shorter texts."
        )
    replaced = tokens.copy()
    replaced[firsts] = np.asarray(vocabulary.sentinels[:num_runs], dtype=tokens.dtype)
    return replaced[firsts | ~mask]


def _composition(total: int, parts: int, generator: np.random.Generator) -> np.ndarray:
    """Draw `parts` positive numbers with the sum `total`, uniformly over all such lists."""
    cuts = np.zeros(total - 1, dtype=np.int64)
    cuts[: parts - 1] = 1
    part_of = np.concatenate([[0], np.cumsum(generator.permutation(cuts))])
    return np.bincount(part_of, minlength=parts)


# T5's family of denoising objectives: one encoder-decoder, eight ways to make input and target from a text.
#
# | objective         | noise              | the encoder reads              | the decoder writes                  |
# |-------------------|--------------------|--------------------------------|-------------------------------------|
# | `seq2seq-lm`      | all                | nothing                        | everything                          |
# | `prefix-lm`       | after a random cut | the text before the cut        | the rest                            |
# | `denoise-full`    | each token, .15    | one sentinel (90 %), random id | everything                          |
# | `denoise-mask`    | each token, .15    | one sentinel                   | everything                          |
# | `deshuffling`     | all                | the tokens in random order     | everything                          |
# | `replace-spans`   | each token, .15    | a sentinel for each run        | a sentinel for each run of the rest |
# | `drop-tokens`     | each token, .15    | the rest                       | the noise                           |
# | `span-corruption` | spans, .15, mean 3 | a sentinel for each span       | a sentinel for each run of the rest |
#
# T5's names are `iid_15_r10s90_f` (BERT-style), `iid_15_m_f` (MASS-style), `iid_15_u_u`, `iid_15_d_d`, `span_3_15_u_u`.
# Source: [@raffel2020exploring]. As in translation, but not in T5, both sides are framed by [CLS] and [SEP], so that
# all encoders of a study read the same frame.
class AbstractTextToText(AbstractEncoderDecoder):
    """The decoder predicts the target that `taken_apart` returns, given the encoder's input."""

    family: ClassVar[Family] = "reconstruct"

    @abstractmethod
    def taken_apart(
        self, tokens: np.ndarray, generator: np.random.Generator, vocabulary: Vocabulary
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Split the tokens between [CLS] and [SEP].

        Returns the encoder's input, the decoder's target, and the mask of input tokens that noise has produced (None:
        no such tokens).
        """

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Apply noise to the text without its special tokens, and frame both sides by [CLS] and [SEP] again."""
        source, target, selected = self.taken_apart(inner(example.text, vocabulary), generator, vocabulary)
        return source_and_target(source, target, vocabulary, selected)


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Seq2SeqLM(AbstractTextToText):
    """Language modelling by a decoder whose encoder reads only special tokens."""

    name: ClassVar[str] = "seq2seq-lm"
    family: ClassVar[Family] = "predict next"
    writes: ClassVar[Writes] = "text"

    def taken_apart(self, tokens, generator, vocabulary):
        return tokens[:0], tokens, None


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class PrefixLM(AbstractTextToText):
    """The encoder reads a prefix of uniformly random length, and the decoder continues it."""

    name: ClassVar[str] = "prefix-lm"
    family: ClassVar[Family] = "predict next"

    def taken_apart(self, tokens, generator, vocabulary):
        cut = prefix_length(len(tokens), generator)
        return tokens[:cut], tokens[cut:], None


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class DenoiseFull(AbstractTextToText):
    """The text gets BERT's noise, and the whole text is predicted (T5's `iid_15_r10s90_f`)."""

    name: ClassVar[str] = "denoise-full"
    writes: ClassVar[Writes] = "text"

    density: Probability = 0.15
    random_share: Probability = 0.1  # share of the noise that becomes random; the rest becomes the first sentinel

    def num_sentinels(self, longest: int) -> int:
        return 1

    def taken_apart(self, tokens, generator, vocabulary):
        noise = iid_mask(len(tokens), self.density, generator)
        source = np.where(noise, first_sentinel(vocabulary), tokens)
        swapped = noise & (generator.random(len(tokens)) < self.random_share)
        source[swapped] = random_tokens(int(swapped.sum()), generator, vocabulary)
        return source, tokens, noise


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class DenoiseMask(AbstractTextToText):
    """Single tokens all become the same sentinel, and the whole text is predicted (`iid_15_m_f`)."""

    name: ClassVar[str] = "denoise-mask"
    writes: ClassVar[Writes] = "text"

    density: Probability = 0.15

    def num_sentinels(self, longest: int) -> int:
        return 1

    def taken_apart(self, tokens, generator, vocabulary):
        noise = iid_mask(len(tokens), self.density, generator)
        return np.where(noise, first_sentinel(vocabulary), tokens), tokens, noise


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Deshuffling(AbstractTextToText):
    """The encoder reads the tokens in random order, and the decoder restores the text."""

    name: ClassVar[str] = "deshuffling"
    writes: ClassVar[Writes] = "text"

    def taken_apart(self, tokens, generator, vocabulary):
        order = generator.permutation(len(tokens))
        return tokens[order], tokens, order != np.arange(len(tokens))


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class ReplaceSpans(AbstractTextToText):
    """Each run of noise becomes a sentinel in the input, and each run of the rest one in the target (`iid_15_u_u`).

    If the first token is noise, the target begins without a sentinel, so input and target number their sentinels
    differently, as in T5's released code.
    """

    name: ClassVar[str] = "replace-spans"

    density: Probability = 0.15

    @property
    def predicted_share(self) -> float:
        return self.density

    def num_sentinels(self, longest: int) -> int:
        # enough for independent noise in all but one of a million texts
        mean = longest * self.density * (1 - self.density) + self.density
        return min((longest + 1) // 2, math.ceil(mean + 5 * math.sqrt(mean) + 2))

    def taken_apart(self, tokens, generator, vocabulary):
        return both_with_sentinels(tokens, iid_mask(len(tokens), self.density, generator), vocabulary)


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class DropTokens(AbstractTextToText):
    """Noise tokens are removed, and only they are predicted, without sentinels (`iid_15_d_d`)."""

    name: ClassVar[str] = "drop-tokens"

    density: Probability = 0.15

    @property
    def predicted_share(self) -> float:
        return self.density

    def taken_apart(self, tokens, generator, vocabulary):
        noise = iid_mask(len(tokens), self.density, generator)
        return tokens[~noise], tokens[noise], None


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class SpanCorruption(AbstractTextToText):
    """T5's objective: spans become sentinels, and the decoder writes the spans (`span_3_15_u_u`)."""

    name: ClassVar[str] = "span-corruption"

    density: Probability = 0.15
    mean_length: Annotated[float, Limits(at_least=1, at_most=1000)] = 3.0  # of a span, in tokens

    @property
    def predicted_share(self) -> float:
        return self.density

    def num_sentinels(self, longest: int) -> int:
        return span_numbers(max(longest, 2), self.density, self.mean_length)[1]

    def taken_apart(self, tokens, generator, vocabulary):
        if len(tokens) == 0:
            return tokens, tokens, None
        return both_with_sentinels(
            tokens, span_mask(len(tokens), self.density, self.mean_length, generator), vocabulary
        )


def prefix_length(length: int, generator: np.random.Generator) -> int:
    """Number of tokens in the prefix, uniform over 1..length − 1; 0 for a text of one token, which is all predicted."""
    return int(generator.integers(1, length)) if length > 1 else 0


def both_with_sentinels(
    tokens: np.ndarray, noise: np.ndarray, vocabulary: Vocabulary
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The input, the target, and the mask of sentinels in the input. Without noise, the target is only its end."""
    source = with_sentinels(tokens, noise, vocabulary)
    target = with_sentinels(tokens, ~noise, vocabulary) if noise.any() else tokens[:0]
    firsts = run_starts(noise)
    return source, target, firsts[firsts | ~noise]


def first_sentinel(vocabulary: Vocabulary) -> int:
    if not vocabulary.sentinels:
        raise UserError(
            "This objective writes a sentinel token (<extra_id_0>) in place of what it removes. Got a tokenizer "
            "without one: add it to its special tokens."
        )
    return vocabulary.sentinels[0]
