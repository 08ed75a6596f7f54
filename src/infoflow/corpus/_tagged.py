"""Reads files with labels of words: a word and its tags per line, and SQuAD's questions with answers as word ranges."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from infoflow.foundation import UserError, as_written

from ._alignment import running_text
from ._columns import NAMED_COLUMNS, Row, plain_text
from ._conllu import NUM_FIELDS
from ._lines import CHUNK_TAG, check_length, printable, read_lines
from ._tables import parsed_json, read_document


class CategoryParts(NamedTuple):
    """The arguments in a CCG category on either side: outermost first, separated by spaces; empty for none."""

    left: str
    right: str


def split_category(category: str) -> CategoryParts:
    r"""Split a CCG category into the part that looks left (past) and the part that looks right (future).

    Arguments are removed from the outside in: those attached by `\` form the left part, those by `/` the right part.
    Unbracketed slashes associate to the left; an atomic category has empty parts. The remaining result is dropped.

    Source: [@voita2019evolution], section 5.3.

    >>> split_category(r"(S\NP)/NP")
    CategoryParts(left='NP', right='NP')
    >>> split_category("NP/N")
    CategoryParts(left='', right='N')
    """
    sides: dict[str, list[str]] = {"\\": [], "/": []}
    rest = _unbracket(category)
    while (cut := _outermost_slash(rest)) is not None:
        sides[rest[cut]].append(_unbracket(rest[cut + 1 :]))
        rest = _unbracket(rest[:cut])
    return CategoryParts(" ".join(sides["\\"]), " ".join(sides["/"]))


def _outermost_slash(category: str) -> int | None:
    """The last slash outside brackets: slashes associate to the left, so it attaches the outermost argument."""
    depth = 0
    for index in range(len(category) - 1, -1, -1):
        char = category[index]
        depth += (char == ")") - (char == "(")
        if depth == 0 and char in "\\/":
            return index
    return None


def _unbracket(category: str) -> str:
    """Remove one pair of brackets around the whole, if any."""
    if not (category.startswith("(") and category.endswith(")")):
        return category
    depth = 0
    for index, char in enumerate(category):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return category[1:-1] if index == len(category) - 1 else category
    return category


# Reads files with a word and its tags per line, as written by supertaggers and sequence labellers.


_DOCUMENT = "-DOCSTART-"
_COMMENT = re.compile(r"#\s*\w[\w.:-]*\s*=|#\s*id\s|#(?:begin|end) document\b")
_INTEGERS = re.compile(r"\d{1,18}")
_IDENTIFIER = re.compile(r"(?=.*\d)[\w-]{4,}")
_PARTS_LISTED = (
    "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X "
    "CC CD DT EX FW IN JJ JJR JJS LS MD NN NNS NNP NNPS PDT POS PRP PRP$ RB RBR RBS RP TO UH VB VBD VBG VBN VBP VBZ "
    "WDT WP WP$ WRB . , : ; ? ! `` '' \" ( ) -LRB- -RRB- # $ HYPH"
)
_PARTS_OF_SPEECH = frozenset(_PARTS_LISTED.split())
_HEADER_LISTED = "word words token tokens form tok tag tags pos upos xpos lemma ner chunk label labels ccg"
_HEADER = frozenset(_HEADER_LISTED.split())
_SNIFFED = 1000  # lines


def tagged_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Columns of a tagged file with these tag columns; `ccg` adds `ccg_left` and `ccg_right`."""
    if clash := sorted(set(names) & (NAMED_COLUMNS - {"upos", "deprel"})):
        raise UserError(f"A tag column cannot be called {clash[0]}: this name is reserved.")
    parts = ("ccg_left", "ccg_right") if "ccg" in names else ()
    return ("text", "words", *names, *parts)


def conll_columns(path: Path) -> tuple[int, tuple[str, ...]] | None:
    """The word column of a `.conll` file, from 1, and names for the tag columns after it.

    Words follow the column that numbers them, if there is one (CoNLL-X, 2009 and 2012, GermEval), else they are in the
    first column that holds neither identifiers, offsets nor chunk tags.
    `tag` is the last column (in CoNLL-2003 the named entity), those before it are `tag_1`, `tag_2`, ... None for a
    CoNLL-U file, which has ten fields, or a file without tags.
    """
    rows = [_line_fields(line, blanks=True) for line in islice(_word_lines(read_lines(path)), _SNIFFED)]
    widths = [len(row) for row in rows if row != [""] and not row[0].startswith("#")] or [0]
    width = min(widths)
    if width < 2 or widths[0] == NUM_FIELDS:
        return None
    rows = [row for row in rows if len(row) >= width or row == [""]]  # comments are shorter
    after_numbers = (index + 2 for index in range(width - 1) if _counts(rows, index))
    first_words = (index + 1 for index in range(width) if not _not_words(_column(rows, index)))
    word = next(chain(after_numbers, first_words), 1)
    num = (width if word > 1 else widths[0]) - word  # the number of columns of CoNLL-2012 varies by sentence
    return (word, (*(f"tag_{number}" for number in range(1, num)), "tag")) if num > 0 else None


def _counts(rows: Sequence[Sequence[str]], place: int) -> bool:
    """Whether a column numbers the words of each sentence, from 0 or 1; rows of one empty cell separate sentences."""
    expected, firsts = None, set()
    for row in rows:
        if row == [""]:
            expected = None
            continue
        if expected is None:
            expected = int(row[place] == "1")
            firsts.add(row[place])
        if row[place] != str(expected):
            return False
        expected += 1
    return len(firsts) == 1


def _column(rows: Sequence[Sequence[str]], place: int) -> list[list[str]]:
    """The cells of a column by sentence; rows of one empty cell separate sentences."""
    sentences: list[list[str]] = [[]]
    for row in rows:
        if row == [""]:
            sentences.append([])
        elif len(row) > place:
            sentences[-1].append(row[place])
    return [sentence for sentence in sentences if sentence]


def _not_words(sentences: Sequence[Sequence[str]]) -> str | None:
    """What the cells of a column are, if they are recognisably not words."""
    cells = [cell for sentence in sentences for cell in sentence]
    first = next(iter(sentences), [])
    if len(first) > 1 and any(first == [str(index + start) for index in range(len(first))] for start in (0, 1)):
        return "numbers"
    if any(len(part) > 3 and len(set(part)) == 1 for part in (first, cells)):
        return "the same value on every line"
    chunks = all(map(CHUNK_TAG.fullmatch, cells)) and set(cells) != {"O"}
    if len(cells) > 3 and (chunks or _PARTS_OF_SPEECH.issuperset(cells)):
        return "tags"
    if len(cells) > 3 and all(map(_INTEGERS.fullmatch, cells)):
        return "numbers"
    if len(set(cells)) == len(cells) > 3 and all(map(_IDENTIFIER.fullmatch, cells)):
        return "identifiers"
    pairs = [pair for sentence in sentences for pair in pairwise(sentence)]
    alike = len({_INTEGERS.sub("0", cell) for cell in cells}) == 1 and bool(_INTEGERS.search(cells[0]))
    if alike and len(pairs) > 1 and all(_integers(first) <= _integers(second) for first, second in pairs):
        return "numbers or identifiers"
    return None


def _starts_anew(sentences: Sequence[Sequence[str]]) -> bool:
    """Whether a column of consecutive numbers restarts inside a sentence."""
    if not all(_INTEGERS.fullmatch(cell) for sentence in sentences for cell in sentence):
        return False
    steps = [(int(first), int(second)) for sentence in sentences for first, second in pairwise(sentence)]
    return any(second < first for first, second in steps) and all(
        second == first + 1 or second in (0, 1) for first, second in steps
    )


def _integers(cell: str) -> list[int]:
    return [int(found) for found in _INTEGERS.findall(cell)]


def _word_lines(lines: Iterable[tuple[int, str]]) -> Iterator[str]:
    """The lines of words, with empty lines between sentences; comments are dropped."""
    begins = True
    for _, line in lines:
        if line.strip() and not line.startswith(_DOCUMENT) and not (begins and _is_comment(line, 2)):
            begins = False
            yield line
        elif not line.strip():
            begins = True
            yield ""


def _is_comment(line: str, fields: int) -> bool:
    """Whether a line before a sentence's first word is a comment: a lone `#` may be a word."""
    return line.startswith("#") and (bool(_COMMENT.match(line)) or len(_line_fields(line, blanks=True)) < fields)


def read_tagged(path: Path, names: Sequence[str], blanks: bool = False, word: int = 1) -> Iterator[Row | None]:
    """Sentences of `word<TAB>tag…` lines, separated by blank lines.

    With `blanks`, spaces may replace tabs, and lines with -DOCSTART- are skipped. Columns before the word column are
    dropped.
    """
    block: list[list[str]] = []
    _check_words(path, blanks, word)
    for number, line in read_lines(path):
        if (blanks and line.startswith(_DOCUMENT)) or (not block and _is_comment(line, word + len(names))):
            continue
        if line.strip():
            block.append(_cells(path, number, line, names, blanks, word))
            check_length(path, number - len(block) + 1, len(block))
        elif block:
            yield _sentence(block, names)
            block = []
    if block:
        yield _sentence(block, names)


def _check_words(path: Path, blanks: bool, word: int) -> None:
    """Raise a UserError if the first words are identifiers, offsets or chunk tags, or all equal."""
    rows = [_line_fields(line, blanks) for line in islice(_word_lines(read_lines(path)), _SNIFFED)]
    named = next((row for row in rows if row != [""]), [""])
    if len(named) > 1 and _HEADER.issuperset(cell.strip().lower() for cell in named):
        raise UserError(
            f"{path}: its first line names the columns: {', '.join(map(printable, named))}.\nRemove this line."
        )
    if word > 1 and any(_starts_anew(_column(rows, index)) for index in range(word - 1)):
        raise UserError(
            f"{path}: the numbering of words restarts without a blank line, so it is unclear where sentences end.\n"
            "Add a blank line after each sentence."
        )
    if found := _not_words(_column(rows, word - 1)):
        shown = "\n".join(f"  {printable(' ⇥ '.join(row))[:90]}" for row in [row for row in rows if row != [""]][:2])
        raise UserError(
            f"{path}: column {word} has {found}, not words. Its first rows:\n{shown}\n"
            f"Name the column of the words, from 1: Corpus.from_tagged(..., word={word + 1}); files named .conll skip "
            "columns of numbers, identifiers and tags in front of the words."
        )


def _line_fields(line: str, blanks: bool) -> list[str]:
    return line.split() if blanks and "\t" not in line and line else line.split("\t")


def _cells(path: Path, number: int, line: str, names: Sequence[str], blanks: bool, word: int) -> list[str]:
    cells = _line_fields(line, blanks)
    expected = word + len(names)
    if len(cells) != expected and not (word > 1 and len(cells) > expected):
        raise UserError(
            f"{path}, line {number}: expected a word and {len(names)} tag(s) separated by tabs "
            f"({', '.join(names)}). Got {len(cells)} field(s).\nCorrect the line, or name the tag columns."
        )
    if not all(cells[word - 1 :]):
        raise UserError(f"{path}, line {number}: a field is empty.\nWrite the word or tag, or _ for none.")
    # CoNLL-2012 has a column for each predicate of a sentence before the last one.
    return [*cells[word - 1 : expected - 1], cells[-1]]


def _sentence(block: list[list[str]], names: Sequence[str]) -> Row:
    words, *tags = (list(column) for column in zip(*block, strict=True))
    row: Row = {"text": running_text(words)[0], "words": words, **dict(zip(names, tags, strict=True))}
    if "ccg" in names:
        row["ccg_left"], row["ccg_right"] = (list(part) for part in zip(*map(split_category, row["ccg"]), strict=True))
    return row


# Reads questions about passages with span answers: SQuAD's format, and answers as word ranges.


QUESTION_COLUMNS = ("text", "question", "answers", "answer_starts")

_RANGE = re.compile(r"(\d{1,6})-(\d{1,6})")


def read_squad(path: Path) -> Iterator[Row | None]:
    """One row per question of a file in SQuAD's format, 1.1 or 2.0; None for a blank question or passage."""
    whole = parsed_json(read_document(path), str(path))
    count = 0
    for article in _list(whole, "data", str(path)):
        for paragraph in _list(article, "paragraphs", str(path)):
            questions = _list(paragraph, "qas", str(path))
            text = plain_text(paragraph.get("context"), str(path), count + 1, "context")
            for entry in questions:
                count += 1
                yield _question(text, entry, str(path), count)


def read_word_answers(sentences: Path, questions: Path) -> Iterator[Row | None]:
    """One row per question about a sentence of another file, with answers as word ranges in that sentence."""
    texts = [_fields(sentences, number, line, 2)[1] for number, line in read_lines(sentences)]
    for number, line in read_lines(questions):
        which, question, ranges = _fields(questions, number, line, 3)
        if not which.isdecimal() or int(which) >= len(texts):
            raise UserError(
                f"{questions}, line {number}: expected the line number of a sentence in {sentences}, from 0 to "
                f"{len(texts) - 1}. Got {as_written(which)}.\nUse two files that belong together."
            )
        words = texts[int(which)].split(" ")
        spans = [_word_range(each, len(words), questions, number) for each in ranges.split()]
        yield _row(" ".join(words), question.strip(), _spans(words, spans))


def _question(text: str, entry: Any, where: str, number: int) -> Row | None:
    """The row of one question, an entry of `qas`."""
    if not isinstance(entry, Mapping):
        raise UserError(f"{where}, question {number}: expected an object. Got {as_written(entry)}.\nCorrect it.")
    question = plain_text(entry.get("question"), where, number, "question").strip()
    if entry.get("is_impossible"):
        return _row(text, question, [])
    answers = entry.get("answers")
    if not isinstance(answers, list) or not (answers or "is_impossible" in entry):
        raise UserError(
            f"{where}, question {number}: expected answers or is_impossible. Got {as_written(answers)}.\n"
            "Questions without published answers cannot be used; leave them out."
        )
    return _row(text, question, [_answer(each, where, number) for each in answers])


def _answer(answer: Any, where: str, number: int) -> tuple[str, int]:
    """The text of an answer, and the start character in the passage that the file gives for it."""
    start = answer.get("answer_start") if isinstance(answer, Mapping) else None
    if not isinstance(start, int) or isinstance(start, bool) or not 0 <= start < 1 << 31:
        raise UserError(
            f'{where}, question {number}: an answer is {{"text": ..., "answer_start": ...}} with an offset from 0. '
            f"Got {as_written(answer)}.\nCorrect it."
        )
    return plain_text(answer.get("text"), where, number, "answers"), start


def _row(text: str, question: str, answers: list[tuple[str, int]]) -> Row | None:
    kept = [(answer, start) for answer, start in dict.fromkeys(answers) if answer.strip()]
    if not (text.strip() and question) or (answers and not kept):
        return None
    return {
        "text": text,
        "question": question,
        "answers": [answer for answer, _ in kept],
        "answer_starts": [start for _, start in kept],
    }


def _list(value: Any, key: str, where: str) -> list[Any]:
    found = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(found, list):
        raise UserError(
            f"{where}: expected SQuAD's format: data, a list of articles with paragraphs, each with a context and "
            f"qas. Got no list {key}.\nConvert it, or read a table: question, text and answers as columns."
        )
    return found


def _fields(path: Path, number: int, line: str, count: int) -> list[str]:
    fields = line.split("\t")
    if len(fields) < count:
        raise UserError(
            f"{path}, line {number}: {count} tab-separated fields are needed. Got {len(fields)}.\nCorrect the line."
        )
    return fields


def _word_range(text: str, num_words: int, path: Path, number: int) -> tuple[int, int]:
    found = _RANGE.fullmatch(text)
    if not found or not int(found[1]) <= int(found[2]) < num_words:
        raise UserError(
            f"{path}, line {number}: expected word ranges such as 0-3 in a sentence with {num_words} words. "
            f"Got {as_written(text)}.\nCorrect the line."
        )
    return int(found[1]), int(found[2])


def _spans(words: list[str], ranges: list[tuple[int, int]]) -> list[tuple[str, int]]:
    starts = [0, *accumulate(len(word) + 1 for word in words)]
    return [(" ".join(words[first : last + 1]), starts[first]) for first, last in ranges]
