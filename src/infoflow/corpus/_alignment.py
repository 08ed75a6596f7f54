"""Words and subwords: the running text behind a list of words, and the subwords of each word."""

import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from tokenizers import Encoding

from infoflow._transformers import PreTrainedTokenizerBase
from infoflow.foundation import inside_word, is_inner, is_unspaced, running_word_spans, writes_no_spaces

_SPACE = re.compile(r"\s*")


def running_text(words: Sequence[str]) -> tuple[str, list[int]]:
    """Words as one text, and the character at which each begins.

    Words are separated by a space, except next to a character of a script without spaces (Han, kana, Thai, Lao, Khmer,
    Myanmar, Tibetan), where most boundaries have none.

    >>> running_text(["two", "cats", "."])
    ('two cats .', [0, 4, 9])
    >>> running_text(["我", "用", "Python", "。"])
    ('我用Python。', [0, 1, 2, 8])
    """
    text, starts = "", []
    for word in words:
        text += "" if not text or writes_no_spaces(text[-1:] + word[:1]) else " "
        starts.append(len(text))
        text += word
    return text, starts


def word_starts(text: str, words: Sequence[str]) -> list[int] | None:
    """The character at which each word begins; None unless the text is these words with optional white space.

    >>> word_starts("Don't go.", ["Do", "n't", "go", "."])
    [0, 2, 6, 8]
    """
    starts, end = [], 0
    for word in words:
        start = end if text.startswith(word, end) else end + len(_SPACE.match(text, end)[0])  # type: ignore[index]
        if not text.startswith(word, start):
            return None
        starts.append(start)
        end = start + len(word)
    return None if text[end:].strip() else starts


def shared_out(surface: str, words: Sequence[str]) -> list[int]:
    """The positions in a written contraction, `surface`, at which its words begin.

    The cuts maximise the agreement of the parts with the words, measured by shared initial and final characters: in
    `du`, `d` belongs to `de` and `u` to `le`.

    >>> shared_out("vámonos", ["vamos", "nos"]), shared_out("im", ["in", "dem"])
    ([0, 4], [0, 1])
    """

    @cache
    def best(word: int, start: int) -> tuple[int, tuple[int, ...]]:
        if word == len(words) - 1:
            return _agreement(surface[start:], words[word]), (start,)
        later = range(min(start + 1, len(surface)), len(surface) + 1)
        found = [(best(word + 1, cut), _agreement(surface[start:cut], words[word])) for cut in later]
        score, cuts = max(((rest + own, cuts) for (rest, cuts), own in found), key=lambda each: each[0])
        return score, (start, *cuts)

    return list(best(0, 0)[1])


def _agreement(part: str, word: str) -> int:
    if not part:
        return -1
    shared = 0
    for pairs in (zip(part, word, strict=False), zip(reversed(part), reversed(word), strict=False)):
        for one, other in pairs:
            if one.lower() != other.lower():
                break
            shared += 1
    return shared


NOT_A_WORD = -1
"""Word id of a special token, and its span."""

_PROBE = "a b a"


class Alignment(NamedTuple):
    """One encoded sentence: token ids, and each token's word, characters, and special flag."""

    ids: list[int]
    words: list[int]
    spans: list[tuple[int, int]]
    special: list[bool]
    truncated: bool


class SubwordAligner:
    """Encodes running text and maps each token to its word.

    If words are known, a token belongs to the word of its first visible character. A token that spans two words (the
    `Don` of `Do` and `n't`, two Chinese words in one) belongs to the first; a word in which no token begins has none.

    Otherwise a word is a piece of the pre-tokenizer (for BERT: split at spaces and punctuation). Tokenizers that do not
    split before merging (Llama, Gemma) put the whole text into one word; there, words end at white space. In scripts
    without spaces each character begins a word (`running_words`).
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, max_length: int, target: bool = False, rendered: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        self._control = control_tokens(tokenizer) if rendered else None
        self._max_length = max_length
        self._argument = "text_target" if target else "text"
        pieces = self._encodings([_PROBE])[0].word_ids
        self._splits_text = len({word for word in pieces if word is not None}) > 1

    def align(
        self, sentences: Sequence[str] | Sequence[list[str]], starts: Sequence[Sequence[int]] | None = None
    ) -> list[Alignment]:
        """Encode a batch of texts, or of word lists, which are joined by `running_text`.

        `starts` are the start characters of each text's words, if they are known.
        """
        if isinstance(sentences[0], str):
            texts = [str(text) for text in sentences]
        else:
            joined = [running_text(words) for words in sentences]
            texts, starts = [text for text, _ in joined], [begins for _, begins in joined]
        words = starts or [None] * len(texts)
        return [self._row(*each) for each in zip(texts, words, self._encodings(texts), strict=True)]

    def _row(self, text: str, starts: Sequence[int] | None, encoding: Encoding) -> Alignment:
        # Many tokenizers include the space before a word in its first token.
        spans = [(end - len(text[start:end].lstrip()), end) for start, end in encoding.offsets]
        if self._control is not None:  # a line break of a template belongs to the template, not to the word after it
            spans = [span if span[0] < span[1] else whole for span, whole in zip(spans, encoding.offsets, strict=True)]
        words = self._words(text, encoding, spans) if starts is None else words_at(spans, starts)
        special = [bool(flag) for flag in encoding.special_tokens_mask]
        if self._control is not None:
            special = [flag or id in self._control for flag, id in zip(special, encoding.ids, strict=True)]
        return Alignment(
            ids=encoding.ids,
            words=[NOT_A_WORD if word is None or out else word for word, out in zip(words, special, strict=True)],
            spans=[(-1, -1) if out else span for span, out in zip(spans, special, strict=True)],
            special=special,
            truncated=bool(encoding.overflowing),
        )

    def _words(self, text: str, encoding: Encoding, spans: Sequence[tuple[int, int]]) -> Sequence[int | None]:
        if not self._splits_text:
            return _running_words(text, spans)
        if text.isascii() or not any(is_unspaced(char) or is_inner(char) for char in text):
            return encoding.word_ids
        return _refined(text, encoding.word_ids, spans)

    def _encodings(self, batch: list[str]) -> list[Encoding]:
        encoded = self._tokenizer(
            **{self._argument: batch},
            truncation=True,
            max_length=self._max_length,
            # "[SEP]" in the text of a corpus must not become the control token, unless a chat template wrote it.
            split_special_tokens=self._control is None,
            add_special_tokens=self._control is None,
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        return encoded.encodings


def control_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """Tokens that texts of users must not contain, such as `[SEP]` and `<|im_start|>`, by id."""
    return {id: token.content for id, token in tokenizer.added_tokens_decoder.items() if token.special}


def words_at(spans: Sequence[tuple[int, int]] | np.ndarray, starts: Sequence[int] | np.ndarray) -> list[int]:
    """The index of the word that contains each token's first character; `starts` has the words' first characters."""
    first = np.asarray(spans, dtype=np.int64).reshape(-1, 2)[:, 0]
    return np.maximum(np.searchsorted(np.asarray(starts), first, side="right") - 1, 0).tolist()


def _refined(text: str, pieces: Sequence[int | None], spans: Sequence[tuple[int, int]]) -> list[int | None]:
    """The pre-tokenizer's pieces with corrected word boundaries.

    They are split in scripts without spaces, and joined if words were cut at combining marks, as in GPT-2.
    """
    found: list[int | None] = []
    number, before = -1, None
    for piece, word, (start, _) in zip(pieces, _running_words(text, spans), spans, strict=True):
        if piece is not None and (piece, word) != before:
            at_mark = any(map(is_inner, text[max(start - 1, 0) : start + 1]))
            number += not (number >= 0 and at_mark and inside_word(text, start))
            before = piece, word
        found.append(None if piece is None else number)
    return found


def _running_words(text: str, spans: Sequence[tuple[int, int]]) -> list[int]:
    return words_at(spans, [start for start, _ in running_word_spans(text)])
