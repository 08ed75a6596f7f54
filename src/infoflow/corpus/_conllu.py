"""Reads CoNLL-U: words, tags and dependency trees of Universal Dependencies treebanks."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from infoflow.foundation import UserError, as_written, current_display

from ._alignment import running_text, shared_out, word_starts
from ._columns import Row
from ._lines import check_length, read_lines

CONLLU_COLUMNS = ("text", "words", "upos", "head", "deprel", "lemma", "xpos")
"""Columns that every treebank has, before keys of FEATS and MISC."""

_ID, _FORM, _LEMMA, _UPOS, _XPOS, _FEATS, _HEAD, _DEPREL, _MISC = 0, 1, 2, 3, 4, 5, 6, 7, 9
NUM_FIELDS = 10
"""Tab-separated fields of a word."""

_BEGINNING = 10_000  # lines

NumberedLine = tuple[int, str]


def read_conllu(
    path: Path, misc: Sequence[str] = (), documents: bool = False, feats: Sequence[str] = ()
) -> Iterator[Row | None]:
    """Sentences of a CoNLL-U file, over *syntactic* words; `documents` adds document numbers from `# newdoc`.

    A multiword token (id `3-4`) is replaced by its words, which share its characters; an empty node (id `5.1`) is
    dropped. Comments are skipped, except `# text =`, which is the sentence's text. If it is missing or differs from the
    tokens, the tokens form the text, with spaces as `SpaceAfter=No` and `SpacesAfter` say. Each key of `misc` becomes a
    column, named in lower case, with each word's value in MISC, or `_`; `feats` does the same for FEATS.
    """
    document, contradicted = -1, 0
    for block in _blocks(path):
        row, written = _sentence(path, block, misc, feats)
        contradicted += bool(row and written and row["text"] != written)
        if documents:
            comments = (line[1:].partition("=")[0].strip() for _, line in block if line.startswith("#"))
            document += document < 0 or any(comment in ("newdoc", "newdoc id") for comment in comments)
            row = row and {**row, "document": document}
        yield row
    if contradicted:
        current_display().note(
            f"{path}: the # text of {contradicted:,} sentences differs from their words. The words are used."
        )


def conllu_keys(path: Path) -> tuple[list[str], list[str]]:
    """The keys in FEATS and in MISC of a CoNLL-U file, in order of first occurrence.

    Lines that are not CoNLL-U are skipped, since the reader of the file reports them.
    """
    feats: dict[str, None] = {}
    misc: dict[str, None] = {}
    for _, line in read_lines(path):
        fields = line.split("\t")
        if len(fields) != NUM_FIELDS or line.startswith("#"):
            continue
        for field, keys in ((fields[_FEATS], feats), (fields[_MISC], misc)):
            pairs = (pair.partition("=") for pair in field.split("|"))
            keys.update(dict.fromkeys(key for key, equals, _ in pairs if key and equals))
    return list(feats), list(misc)


def has_brackets(path: Path) -> bool:
    """Whether the beginning of a CoNLL-U file has coreference brackets."""
    return any("Entity=" in line.rpartition("\t")[2] for _, line in islice(read_lines(path), _BEGINNING))


def _blocks(path: Path) -> Iterator[list[NumberedLine]]:
    block: list[NumberedLine] = []
    for number, line in read_lines(path):
        if line.strip():
            block.append((number, line))
            check_length(path, block[0][0], len(block))
        elif block:
            yield block
            block = []
    if block:
        yield block


def _sentence(
    path: Path, block: list[NumberedLine], misc: Sequence[str], feats: Sequence[str]
) -> tuple[Row | None, str | None]:
    """The sentence of a block, and its `# text` comment."""
    text: str | None = None
    words: list[list[str]] = []
    numbers: list[int] = []
    surface = _Surface()
    for number, line in block:
        if line.startswith("#"):
            name, _, value = line[1:].partition("=")
            text = value.strip() if name.strip() == "text" else text
            continue
        fields = _fields(path, number, line)
        kind = _kind(path, number, fields[_ID], expected=len(words) + 1)
        surface.add(kind, fields)
        if kind == "word":
            words.append(fields)
            numbers.append(number)
    if not words:
        return None, text
    row = {
        **surface.located(text),
        "words": [word[_FORM] for word in words],
        "upos": [word[_UPOS] for word in words],
        "head": _heads(path, numbers, words),
        "deprel": [word[_DEPREL] for word in words],
        "lemma": [word[_LEMMA] for word in words],
        "xpos": [word[_XPOS] for word in words],
        **{key.lower(): [_value(word[_MISC], key) for word in words] for key in misc},
        **{key.lower(): [_value(word[_FEATS], key) for word in words] for key in feats},
    }
    return row, text


def _value(field: str, key: str) -> str:
    """The value of `key` in a MISC or FEATS field; `_` if it is missing."""
    pairs = (pair.partition("=") for pair in field.split("|"))
    return next((value for name, _, value in pairs if name == key and value), "_")


class _Surface:
    """The written tokens of a sentence: words, and multiword tokens in place of their words."""

    def __init__(self) -> None:
        self._tokens: list[str] = []
        self._words: list[list[str]] = []  # words of each token
        self._spaces: list[bool | None] = []  # after each token; None if the file does not say
        self._covered = 0  # words up to this id belong to a multiword token

    def add(self, kind: str, fields: list[str]) -> None:
        if kind == "empty":
            return
        if kind == "word" and int(fields[_ID]) <= self._covered:
            self._words[-1].append(fields[_FORM])
            return
        if kind == "range":
            self._covered = int(fields[_ID].split("-")[1])
        self._tokens.append(fields[_FORM])
        self._words.append([fields[_FORM]] if kind == "word" else [])
        self._spaces.append(_space_after(fields[_MISC]))

    def located(self, text: str | None) -> Row:
        """The text, and the position of each word in it."""
        starts = word_starts(text, self._tokens) if text else None
        if text is None or starts is None:
            text, starts = self._joined()
        return {
            "text": text,
            "word_starts": [
                place for each in zip(self._tokens, self._words, starts, strict=True) for place in _places(*each)
            ],
        }

    def _joined(self) -> tuple[str, list[int]]:
        """The tokens with their spaces; `running_text` decides if the sentence has no information on spaces."""
        if all(space is None for space in self._spaces):
            return running_text(self._tokens)
        text, starts = "", []
        for token, space in zip(self._tokens, self._spaces, strict=True):
            starts.append(len(text))
            text += token if space is False else f"{token} "
        return text.rstrip(), starts


def _space_after(misc: str) -> bool | None:
    pairs = misc.split("|")
    if "SpaceAfter=No" in pairs:
        return False
    return True if any(pair.startswith(("SpaceAfter=", "SpacesAfter=")) for pair in pairs) else None


def _places(token: str, words: list[str], start: int) -> list[int]:
    """The positions of a token's words in the text."""
    if len(words) == 1:
        return [start]
    within = word_starts(token, words) or shared_out(token, words) if words else []
    return [start + place for place in within]


def _fields(path: Path, number: int, line: str) -> list[str]:
    fields = line.split("\t")
    if len(fields) != NUM_FIELDS:
        raise UserError(
            f"{path}, line {number}: a CoNLL-U word has 10 tab-separated fields. Got {len(fields)}.\n"
            "Correct the line (tabs may have become spaces), or remove the sentence."
        )
    if not fields[_FORM]:
        raise UserError(f"{path}, line {number}: the FORM field is empty.\nWrite the word, or remove the sentence.")
    return fields


def _kind(path: Path, number: int, identifier: str, expected: int) -> str:
    """The kind of a line by its identifier: `"word"`, `"range"` (multiword token) or `"empty"` (node)."""
    for separator, kind in (("-", "range"), (".", "empty")):
        first, found, last = identifier.partition(separator)
        if found and _number(first) is not None and _number(last) is not None:
            return kind
    if identifier == str(expected):
        return "word"
    raise UserError(
        f"{path}, line {number}: expected word id {expected}. Got {as_written(identifier[:40])}.\n"
        "Words are numbered 1, 2, 3, ... within a sentence, and a blank line ends it: correct the line."
    )


def _heads(path: Path, numbers: list[int], words: list[list[str]]) -> list[int]:
    heads = [_head(path, number, word[_HEAD], len(words)) for number, word in zip(numbers, words, strict=True)]
    if (lost := _off_tree(heads)) is not None:
        raise UserError(
            f"{path}, line {numbers[lost]}: the heads of word {lost + 1} form a cycle and never reach a root.\n"
            "Exactly one word of a sentence has HEAD 0: correct the heads, or remove the sentence."
        )
    return heads


def _head(path: Path, number: int, value: str, length: int) -> int:
    head = _number(value)
    if head is not None and head <= length:
        return head - 1
    raise UserError(
        f"{path}, line {number}: HEAD must lie in 0..{length} (0: root). Got {as_written(value[:40])}.\n"
        "Correct the line; a file without annotated heads can be read as text instead."
    )


def _number(text: str) -> int | None:
    """A number of up to nine digits, because no sentence has more words and `int` refuses thousands of digits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 9 else None


def _off_tree(heads: list[int]) -> int | None:
    """The first word whose chain of heads does not reach a root, or None."""
    safe = {-1}
    for start in range(len(heads)):
        path: list[int] = []
        word = start
        while word not in safe:
            if len(path) > len(heads):
                return start
            path.append(word)
            word = heads[word]
        safe.update(path)
    return None
