"""Objectives of encoder-decoders: their common base, machine translation, MASS and BART."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, final

import numpy as np

from infoflow._transformers import EncoderDecoderModel, PreTrainedModel, T5ForConditionalGeneration
from infoflow.architectures import Layout
from infoflow.corpus import Vocabulary
from infoflow.foundation import LATER, Limits, Probability, UserError

from ._batch import (
    SENTENCE_FIELDS,
    UNSUPERVISED,
    Batch,
    Corrupted,
    Example,
    Field,
    LossTerm,
    Noise,
    Shown,
    supervised_cross_entropy,
)
from ._masking import hide, mask_id, random_tokens
from ._objective import BLEU, LOSS, AbstractObjective, Family, Metric, Writes, drop_tokens


def inner(tokens: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """The tokens between [CLS] and [SEP], to which noise applies."""
    first = int(len(tokens) > 0 and tokens[0] == vocabulary.start)
    last = len(tokens) - int(len(tokens) > first and tokens[-1] == vocabulary.end)
    return tokens[first:last]


def framed(tokens: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    """[CLS] tokens [SEP], int64."""
    return np.concatenate([[vocabulary.start], tokens, [vocabulary.end]]).astype(np.int64)


def source_and_target(
    source: np.ndarray, target: np.ndarray, vocabulary: Vocabulary, selected: np.ndarray | None = None
) -> Corrupted:
    """The encoder reads [CLS] source [SEP]; the decoder reads [CLS] target and predicts target [SEP].

    `selected` marks the tokens of `source` that noise has produced.
    """
    inputs, outputs = framed(source, vocabulary), framed(target, vocabulary)
    chosen = np.zeros(len(inputs), dtype=bool)
    if selected is not None:
        chosen[1:-1] = selected
    arrays = {"input_ids": inputs, "labels": outputs[1:], "decoder_input_ids": outputs[:-1]}
    return Corrupted(arrays=arrays, selected=chosen)


def target_loss(
    name: str, module: PreTrainedModel, batch: Batch, label_smoothing: float = 0.0, **reads: Any
) -> dict[str, LossTerm]:
    """Cross-entropy of the target's tokens; `reads` are further decoder inputs."""
    encoder, decoder, owner, scale = _parts(module, name)
    source = encoder(input_ids=batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state
    # The decoder's padding is on the right, where no causal position sees it, so no mask is needed.
    inputs = {
        "input_ids": batch.decoder_input_ids,
        "encoder_hidden_states": source,
        "encoder_attention_mask": batch.attention_mask,
        "use_cache": False,
        **reads,
    }
    if isinstance(module, T5ForConditionalGeneration):
        inputs.pop("position_ids", None)  # positions are relative, so shifting all of them changes nothing
    hidden = decoder(**inputs).last_hidden_state * scale
    return {name: supervised_cross_entropy(owner, hidden, batch.labels, label_smoothing)}


def _parts(module: PreTrainedModel, name: str) -> tuple[Any, Any, Any, float]:
    """The encoder, the decoder, the module with the output head, and T5's factor on the last states."""
    whole: Any = module
    if isinstance(module, EncoderDecoderModel):
        return whole.encoder, whole.decoder.base_model, whole.decoder, 1.0
    if isinstance(module, T5ForConditionalGeneration):
        scaled = getattr(module.config, "scale_decoder_outputs", module.config.tie_word_embeddings)
        return whole.encoder, whole.decoder, whole, module.config.d_model**-0.5 if scaled else 1.0
    raise UserError(
        f"{name} trains an EncoderDecoderModel. Got {type(module).__name__}.\n"
        "Build one with build_models, or from two pretrained stacks with transformers."
    )


class AbstractEncoderDecoder(AbstractObjective):
    """The encoder reads a source, and the decoder predicts a target."""

    layout: ClassVar[Layout] = "encoder-decoder"

    def __init_subclass__(cls) -> None:
        if hasattr(cls, "name"):
            cls.term_weights = {cls.name: 1.0}

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Cross-entropy of the decoder's tokens, [SEP] included."""
        return target_loss(self.name, module, batch, label_smoothing)


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Translation(AbstractEncoderDecoder):
    """Predict the tokens of the target, including its end, given the source."""

    name: ClassVar[str] = "translation"
    family: ClassVar[Family] = "translate"
    needs_translation: ClassVar[bool] = True
    writes: ClassVar[Writes] = "translation"
    metrics: ClassVar[tuple[Metric, ...]] = (LOSS, BLEU)

    token_dropout: Probability = 0.0  # probability that a *source* token is replaced by a random one
    decoder_dropout: Probability = field(default=0.0, metadata=LATER)  # probability of hiding a token from the decoder

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """The decoder reads [CLS] y and predicts y [SEP].

        With probability `decoder_dropout`, each token of y is replaced by [CLS] in the decoder's input but not in its
        target, so the decoder sees less of the text and must rely on the encoder (word dropout, [@bowman2016]).
        """
        tokens, target = example.text, example.translation
        if target is None:
            raise UserError("translation needs a parallel corpus. Got sentences without translations.")
        selected = np.zeros(len(tokens), dtype=bool)
        if self.token_dropout:
            tokens, selected = drop_tokens(tokens, self.token_dropout, generator, vocabulary)
        reads = target[:-1]
        if self.decoder_dropout:
            reads = np.where(generator.random(len(reads)) < self.decoder_dropout, target[0], reads)
        arrays = {"input_ids": tokens, "labels": target[1:], "decoder_input_ids": reads}
        return Corrupted(arrays=arrays, selected=selected)

    def for_evaluation(self) -> "Translation":
        """The same objective on clean inputs."""
        return replace(self, token_dropout=0.0, decoder_dropout=0.0)


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Mass(AbstractEncoderDecoder):
    """Predict a fragment, half of the text, which the encoder sees as [MASK] (80 %), random (10 %) or unchanged (10 %).

    For each token of the fragment, the decoder reads the preceding token at its position in the text. Its
    cross-attention leaves out [MASK]. The fragment is at the beginning or the end with probability .2 each, otherwise
    anywhere. Source: [@song2019mass], whose code derives the fragment's length from the longest sentence of a batch;
    here it depends on each sentence's own length.
    """

    name: ClassVar[str] = "mass"
    family: ClassVar[Family] = "reconstruct"
    fields: ClassVar[dict[str, Field]] = {**SENTENCE_FIELDS, "decoder_position_ids": Field(), "visible": Field()}

    share: Probability = 0.5  # share of the text in the fragment
    mask_share: Probability = 0.8  # of the fragment's tokens
    random_share: Probability = 0.1

    @property
    def predicted_share(self) -> float:
        return self.share

    @property
    def needs_mask(self) -> bool:
        return True

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Hide a fragment; the first special token is never part of it."""
        tokens, mask = example.text, mask_id(vocabulary, self.name)
        first, stop = fragment(len(tokens) - 2, self.share, generator)
        positions = np.arange(first, stop)
        shown = hide(
            tokens,
            positions,
            generator,
            vocabulary,
            self.name,
            mask_share=self.mask_share,
            random_share=self.random_share,
        )
        selected = np.zeros(len(tokens), dtype=bool)
        selected[positions] = True
        # A text without tokens has no fragment, so the decoder reads only [CLS] and has no target.
        read = positions - 1 if len(positions) else np.zeros(1, dtype=np.int64)
        arrays = {
            "input_ids": shown,
            "labels": tokens[positions] if len(positions) else np.full(1, UNSUPERVISED),
            "decoder_input_ids": tokens[read],
            "decoder_position_ids": read,
            "visible": (shown != mask).astype(np.int64),
        }
        return Corrupted(arrays=arrays, selected=selected)

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Cross-entropy of the fragment's tokens."""
        return target_loss(
            self.name,
            module,
            batch,
            label_smoothing,
            position_ids=batch["decoder_position_ids"],
            encoder_attention_mask=batch["visible"],  # 0 at padding too
        )

    def shown(self, batch: Batch, names: Sequence[str], target_names: Sequence[str]) -> Shown:
        """The usual lines, and the positions of the decoder's tokens in the text."""
        plain = AbstractObjective.shown(self, batch, names, target_names)
        positions = list(map(str, batch["decoder_position_ids"].flatten().tolist()))
        return replace(plain, inputs={**plain.inputs, "positions": positions})


def fragment(length: int, share: float, generator: np.random.Generator) -> tuple[int, int]:
    """First position and end of the fragment in a text of `length` tokens, which starts at position 1."""
    size = min(max(round(length * share), 1), length)
    where = generator.random()
    if where < 0.2:
        start = 0
    elif where < 0.4:
        start = length - size
    else:
        start = int(generator.integers(length - size + 1))
    return 1 + start, 1 + start + size


Hidden = Literal["span", "token", "none"]
"""Replacement of hidden words.

It is one [MASK] per span (text infilling), one per token (token masking), or nothing (token deletion).
"""
MeanLength = Annotated[float, Limits(at_least=0, at_most=100)]
MARK = "sentence_starts"
"""Key of `Example.labels` that says for each token whether a sentence begins there (Bool)."""


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Bart(AbstractEncoderDecoder):
    """Denoising of whole texts; the kinds of noise apply in the order of the settings.

    The defaults are those of the published model, according to fairseq issue 1899.

    The paper's mean span is 3.0 ([@lewis2020bart]); fairseq's own defaults disable everything but rotation. To apply a
    single kind of noise: token masking `permute=0, spans=0, leaves="token"`, deletion `permute=0, spans=0,
    leaves="none"`, infilling `permute=0`, sentence permutation `mask=0`, rotation `permute=0, mask=0, rotate=1`.
    """

    name: ClassVar[str] = "bart"
    family: ClassVar[Family] = "reconstruct"
    writes: ClassVar[Writes] = "text"

    permute: Probability = 1.0  # share of the sentences that are permuted
    mask: Probability = 0.3  # share of the words that are hidden; an upper bound, since spans may overlap
    spans: MeanLength = 3.5  # mean length of a span in words (Poisson); 0: every span is one word
    leaves: Hidden = "span"
    random_share: Probability = 0.1  # share of the spans that become random tokens instead of [MASK]
    insert: Probability = 0.0  # inserted [MASK]s, as a share of the tokens
    rotate: Probability = 0.0  # probability that the text begins at a random token

    @property
    def needs_mask(self) -> bool:
        """Whether words are hidden or masks are inserted; sentence permutation alone needs no mask."""
        return self.mask > 0 or self.insert > 0

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Corrupt the text between [CLS] and [SEP]; the target is the clean text."""
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
            offset = int(generator.integers(len(tokens)))  # any token may come first, even the current first one
            tokens, noisy = np.roll(tokens, -offset), np.roll(noisy, -offset)
        return source_and_target(tokens, text, vocabulary, noisy)

    def _hidden(
        self, tokens: np.ndarray, generator: np.random.Generator, vocabulary: Vocabulary
    ) -> tuple[np.ndarray, np.ndarray]:
        """Hide spans of words; empty spans become inserted [MASK]s.

        Overlapping spans leave a single [MASK], that of the first span, as in fairseq's `add_whole_word_mask`.
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
    """Bool (token,): whether a sentence begins there, according to the example or else after . ! ?"""
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
    """The tokens with `num` [MASK]s inserted at uniformly random positions."""
    if num == 0:
        return tokens, noisy
    new = np.zeros(len(tokens) + num, dtype=bool)
    new[generator.permutation(len(new))[:num]] = True
    result, marks = np.full(len(new), mask, dtype=np.int64), np.ones(len(new), dtype=bool)
    result[~new], marks[~new] = tokens, noisy
    return result, marks
