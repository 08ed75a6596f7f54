"""The text on which a model is measured: with its training corruption, as rows of one stack, as padded tensors."""

import unicodedata
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from infoflow._transformers import PreTrainedTokenizerBase
from infoflow.corpus import NOT_A_WORD, Vocabulary
from infoflow.foundation import UserError, stream
from infoflow.models import Model
from infoflow.objectives import UNSUPERVISED, AbstractObjective, Corrupted, Example, pad_arrays

from ._sample import NO_LABEL, Stream


def cannot_hide(model: Model) -> str | None:
    """Why tokens of a model's input cannot be masked as in a masked LM's training; None if they can."""
    tokenizer = model.tokenizer
    if tokenizer is not None and None in (tokenizer.mask_token_id, tokenizer.pad_token_id):
        return "its tokenizer has no mask or no padding token, so its input cannot be corrupted as in training"
    return None


def corrupt_text(
    objective: AbstractObjective, tokens: np.ndarray, generator: np.random.Generator, vocabulary: Vocabulary
) -> Corrupted:
    """Corrupt one text with an objective's noise, token by token."""
    corrupted = objective.corrupt(Example(texts=(tokens.astype(np.int64),)), generator, vocabulary)
    if len(corrupted.input_ids) != len(tokens):
        raise UserError(
            f"A measure of tokens needs a corruption that keeps each token at its position. {objective.name} turned "
            f"{len(tokens)} tokens into {len(corrupted.input_ids)}.\nMeasure the model with another corruption."
        )
    return corrupted


# The training regime of a masked LM: its own corruption, with occurrences that distinguish input from output.
#
# Mutual information with the input and with the output differs only at positions where the two differ, so Voita,
# Sennrich and Titov (2019) keep the occurrences whose input is a *random replacement* of the token to predict. Natural
# corruption yields 1.5 % of them. Here a quarter of the selected positions, rounded at random so that every token has
# the same chance for any sentence length, gets a replacement drawn uniformly from the most frequent types; all others
# are corrupted as usual. If few positions are selected (short sentences), the context is distributed as in training; in
# long sentences slightly more of it is replaced.


PROBED_SHARE = 0.25
"""Share of the positions that the objective selects."""
_NOWHERE = np.empty(0, dtype=np.int64)


class NoisySentence(NamedTuple):
    tokens: np.ndarray  # (2, token) int32, inputs and labels: one small array, since many sentences are held at once
    probes: np.ndarray  # positions whose input is a replacement and differs from the label
    replaces: bool  # where a token of text is predicted: whether the input is a different token


class ProbingNoise:
    """Corrupts sentences; the noise depends only on (seed, draw, sentence id)."""

    def __init__(
        self, objective: AbstractObjective, vocabulary: Vocabulary, replacements: np.ndarray, seed: int
    ) -> None:
        self._objective, self._vocabulary = objective, vocabulary
        self._replacements, self._seed = replacements, seed

    def __call__(self, tokens: np.ndarray, draw: int, sentence_id: int) -> NoisySentence:
        generator = stream("probing-noise", self._seed, draw, sentence_id)
        corrupted = corrupt_text(self._objective, tokens, generator, self._vocabulary)
        noisy = np.array([corrupted.input_ids, corrupted.labels], dtype=np.int32)
        inputs, labels = noisy
        selected, probes = corrupted.selected.nonzero()[0], _NOWHERE
        generator.shuffle(selected)
        if num := int(PROBED_SHARE * len(selected) + generator.random()):
            chosen = selected[:num]
            inputs[chosen] = self._replacements[generator.integers(len(self._replacements), size=num)]
            labels[chosen] = tokens[chosen]
            probes = np.sort(chosen[inputs[chosen] != tokens[chosen]])
        replaced = (labels != UNSUPERVISED) & (labels != inputs) & ~self._vocabulary.is_special[inputs]
        return NoisySentence(tokens=noisy, probes=probes, replaces=np.count_nonzero(replaced) > 0)


_LETTERS_MARKS_DIGITS = "LMN"
_PART_OF_CHARACTER = "\ufffd"


def symbol_ids(tokenizer: PreTrainedTokenizerBase, ids: np.ndarray) -> tuple[int, ...]:
    """The `ids` whose text has neither letter nor digit.

    A piece of a multi-byte character counts as a letter, since its text is unknown.
    """
    texts = tokenizer.batch_decode([[index] for index in ids.tolist()], clean_up_tokenization_spaces=False)
    return tuple(index for index, text in zip(ids.tolist(), texts, strict=True) if not any(map(_is_part, text)))


def _is_part(character: str) -> bool:
    """Whether the character can be part of a word."""
    return character == _PART_OF_CHARACTER or unicodedata.category(character)[0] in _LETTERS_MARKS_DIGITS


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Row:
    """One sentence for one stack: its input and its prediction targets."""

    tokens: np.ndarray
    clean: np.ndarray  # the input before corruption
    labels: np.ndarray
    special: np.ndarray
    words: np.ndarray
    counted: np.ndarray  # all tokens, or those with the requested tag
    probes: np.ndarray  # positions whose states are worth sampling


def clean_row(
    tokens: np.ndarray, labels: np.ndarray, special: np.ndarray, words: np.ndarray, counted: np.ndarray | None = None
) -> Row:
    """A row without corruption: a sentence as it is, or as a decoder reads it."""
    counted = np.ones(len(tokens), dtype=bool) if counted is None else counted
    return Row(
        tokens=tokens,
        clean=tokens,
        labels=labels,
        special=special,
        words=words,
        counted=counted,
        probes=np.flatnonzero(counted & ~special),
    )


def padded_stream(rows: list[Row], pad: int) -> Stream:
    """The rows as right-padded tensors."""
    lengths = np.array([len(row.tokens) for row in rows])
    position = np.arange(lengths.max())
    real = position < lengths[:, None]
    special = pad_arrays([row.special for row in rows], True)
    return Stream(
        input_ids=torch.from_numpy(pad_arrays([row.tokens for row in rows], pad)),
        real=torch.from_numpy(real),
        valid=torch.from_numpy(real & ~special.astype(bool)),
        counted=torch.from_numpy(pad_arrays([row.counted for row in rows], False).astype(bool)),
        labels=torch.from_numpy(pad_arrays([row.labels for row in rows], NO_LABEL)),
        position=torch.from_numpy(np.where(real, position, -1)),
        words=torch.from_numpy(pad_arrays([row.words for row in rows], NOT_A_WORD)),
    )


def ranks_of(counts: np.ndarray) -> np.ndarray:
    """The frequency rank of each type: 1 for the most frequent one, 0 for types that do not occur."""
    order = np.argsort(-counts, kind="stable")
    ranks = np.empty(len(counts), dtype=np.int64)
    ranks[order] = np.arange(1, len(counts) + 1)
    return np.where(counts > 0, ranks, 0)
