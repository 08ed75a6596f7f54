"""Sources and targets as token ids: `ExampleRows` of a generation task."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, final

import numpy as np
from transformers import PreTrainedTokenizerBase

from infoflow.corpus import Corpus
from infoflow.foundation import UserError, current_display, digest
from infoflow.objectives import Example

BEGINS = "target_begins"
"""Key of `Example.labels`: number of tokens that the tokenizer puts before the target's text, 0 or 1."""
_AT_ONCE = 1024  # texts per call of the tokenizer


class TextFormat(NamedTuple):
    """The tokens that a tokenizer puts around a text."""

    tokenizer: PreTrainedTokenizerBase
    start: int | None
    """The token before a text; None if there is none."""
    end: int
    """The token after a text; this task adds it if the tokenizer does not."""
    adds_end: bool
    pad: int


@final
class GenerationRows:
    """The source and target of each row of a corpus: example i has the texts (source,) and the translation target.

    Both end with the end-of-text token; after a source it separates it from the target if one stack reads both. Sources
    are cut to `max_length` tokens, targets to `max_target` after their start; their ends are kept.
    """

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: PreTrainedTokenizerBase,
        target_tokenizer: PreTrainedTokenizerBase | None,
        prefix: str,
        max_length: int,
        max_target: int,
    ) -> None:
        """
        Raises:
            UserError: There are no targets, no room for one, or a tokenizer has no end of text.
        """
        corpus.require("translation")
        source_side = text_format(tokenizer, target=False)
        self.side = text_format(target_tokenizer or tokenizer, target=target_tokenizer is None)
        """Format of the target side."""
        max_target += self.side.start is not None
        _check_room(source_side, max_length)
        _check_room(self.side, max_target)
        sources = (prefix + text for text in corpus.column("text"))
        self._sources = _encoded(source_side, sources, max_length, target=False)
        self._targets = _encoded(self.side, corpus.column("translation"), max_target, target=target_tokenizer is None)
        self.pad = source_side.pad
        """The padding id of sources."""
        self.sentence_ids: np.ndarray = corpus.ids
        self.source_lengths: np.ndarray = np.array([len(ids) for ids in self._sources], dtype=np.int64)
        """Number of tokens of each source, as the encoder reads it."""
        self.lengths: np.ndarray = self.source_lengths + np.array([len(ids) for ids in self._targets])
        self.digest = _digest(self._sources, self._targets)
        for what, rows, most in (("texts", self._sources, max_length), ("texts to write", self._targets, max_target)):
            if cut := sum(len(ids) == most for ids in rows):
                current_display().note(
                    f"{corpus.name}: {cut:,} of {len(rows):,} {what} fill {most} tokens or were truncated."
                )

    def row(self, index: int) -> np.ndarray:
        """Token ids of source and target, special tokens included."""
        return np.concatenate([self._sources[index], self._targets[index]])

    def source(self, index: int) -> np.ndarray:
        """Token ids of the source."""
        return self._sources[index]

    def example(self, index: int) -> Example:
        """The source as the text, the target as its translation."""
        begins = int(self.side.start is not None and self._targets[index][0] == self.side.start)
        return Example(
            texts=(self._sources[index],), translation=self._targets[index], labels={BEGINS: np.array(begins)}
        )


def text_format(tokenizer: Any, target: bool) -> TextFormat:
    """The tokens that a tokenizer puts around texts, found by encoding one."""
    keyword = "text_target" if target else "text"
    ids = tokenizer(**{keyword: "a"})["input_ids"]
    ends = [id for id in (tokenizer.eos_token_id, tokenizer.sep_token_id) if id is not None]
    adds_end = bool(ids) and ids[-1] in ends
    if not ends:
        raise UserError(
            "Generation needs a token that ends a text. The tokenizer has neither an end-of-text nor a "
            "separator token.\n"
            "Set one: tokenizer.eos_token = ..., or load the tokenizer that belongs to the model."
        )
    starts = {id for id in (tokenizer.cls_token_id, tokenizer.bos_token_id) if id is not None}
    begins = len(ids) > 1 and ids[0] in starts
    end = ids[-1] if adds_end else ends[0]
    pad = tokenizer.pad_token_id
    return TextFormat(tokenizer, ids[0] if begins else None, end, adds_end, end if pad is None else pad)


def _check_room(side: TextFormat, room: int) -> None:
    least = 2 + (side.start is not None)
    if room < least:
        raise UserError(
            f"A text needs at least one token in addition to the special ones, {least} in total. Got {room}.\n"
            "Raise max_length or max_target."
        )


def _encoded(side: TextFormat, texts: Iterable[str], most: int, target: bool) -> list[np.ndarray]:
    tokenizer: Any = side.tokenizer
    keyword = "text_target" if target else "text"
    found: list[np.ndarray] = []
    for part in _parts(iter(texts)):
        encoded = tokenizer(
            **{keyword: part},
            truncation=True,
            max_length=most if side.adds_end else most - 1,
            return_attention_mask=False,
            return_token_type_ids=False,
            # A text may contain "[SEP]": it must not become the control token.
            split_special_tokens=True,
        )
        ends = [] if side.adds_end else [side.end]
        found += [np.array([*ids, *ends], dtype=np.int64) for ids in encoded["input_ids"]]
    return found


def _parts(texts: Iterator[str]) -> Iterator[list[str]]:
    while part := list(islice(texts, _AT_ONCE)):
        yield part


def _digest(sources: Sequence[np.ndarray], targets: Sequence[np.ndarray]) -> str:
    hashed = hashlib.sha256()
    for ids in (*sources, *targets):
        hashed.update(ids.tobytes())
        hashed.update(b"|")
    return digest(["texts to write", hashed.hexdigest()])
