"""Pairs of inputs that differ in one thing, with the answers that they determine: from files, or generated."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infoflow.corpus import read_records
from infoflow.corpus._grammar_lexicon import make_lexicon
from infoflow.foundation import UserError, as_written, current_display, stream

BLANK = "___"
_COLUMNS: dict[str, tuple[str, ...]] = {
    "clean": ("clean", "sentence_good", "good"),
    "corrupted": ("corrupted", "corrupt", "sentence_bad", "bad"),
    "answer": ("answer", "correct"),
    "wrong": ("wrong", "wrong_answer", "incorrect"),
    "target": ("target",),
}
"""Fields, and the names under which files have them; the second ones are BLiMP's."""
_SUFFIXES = (".jsonl", ".csv", ".tsv")
_GENERATED = re.compile("grammar(?::([1-9][0-9]{0,5}))?")


@dataclass(frozen=True, kw_only=True, slots=True)
class PatchPair:
    """Two inputs that differ in one thing, and the answer to the first.

    >>> PatchPair(clean="the cats ___ .", corrupted="the cat ___ .", answer="sleep", wrong="sleeps").answer
    'sleep'
    """

    clean: str
    """The input with this answer. `___` marks the place of the answer; without it, the answer follows the text."""
    corrupted: str
    """The other input, with as many tokens."""
    answer: str
    wrong: str = ""
    """The answer to the corrupted input; empty: none, and the metric is the log-probability of the answer."""
    target: str = ""
    """For encoder-decoders: what the decoder has written before the answer."""
    line: int = 0
    """Line in the file; 0: not from a file."""


def read_pairs(source: Path | str) -> list[PatchPair]:
    """The pairs of a file, or generated ones.

    | source   | holds                                                                                      |
    |----------|--------------------------------------------------------------------------------------------|
    | `.jsonl` | objects with `clean`, `corrupted`, `answer`, and optionally `wrong` and `target`           |
    | `.csv`, `.tsv` | the same, with the names in the first line                                           |
    | BLiMP    | any of these with `sentence_good` and `sentence_bad` (or `good` and `bad`): the answer is the first |
    |          | word after the last difference                                                             |
    | `grammar:N` | N generated subjects, singular and plural, with the two forms of their verb; `grammar`: 200 |

    Files may be gzipped (`.jsonl.gz`). BLiMP pairs that differ in their last word, or have different numbers of words,
    are left out, because patching needs two inputs and these give only one. A note says how many there are.

    Raises:
        UserError: The file is missing or malformed, or holds no pair.

    Source: columns as in [@hanna2024], sentences as in [@warstadt2020].
    """
    if generated := _GENERATED.fullmatch(str(source)):
        return list(_agreement(int(generated[1] or 200)))
    path = Path(source)
    if not path.is_file():
        raise UserError(f"There is no file {path} of pairs. Check the path, or write grammar:200 for generated pairs.")
    if not path.name.removesuffix(".gz").endswith(_SUFFIXES):
        raise UserError(f"Pairs are read from {', '.join(_SUFFIXES)}. Got {path}.\nGive it such a name, or convert it.")
    every = [_pair(path, number, record) for number, record in read_records(path)]
    found = [pair for pair in every if isinstance(pair, PatchPair)]
    left_out = [why for why in every if isinstance(why, str)]
    if not found:
        why = f" {left_out[0]}" if left_out else ""
        raise UserError(f"{path} holds no pair to patch.{why}\nGive each line clean, corrupted and answer.")
    if left_out:
        current_display().note(f"{len(left_out):,} of {len(every):,} pairs are left out. {left_out[0]}")
    return found


def _pair(path: Path, number: int, record: Mapping[str, Any]) -> "PatchPair | str":
    """The pair; or, for a BLiMP pair without two inputs, why it is left out."""
    texts = {}
    for field, names in _COLUMNS.items():
        value = next((record[name] for name in names if record.get(name) not in (None, "")), "")
        if not isinstance(value, str) or (field in ("clean", "corrupted") and not value.strip()):
            got = "nothing" if value == "" else as_written(value)
            raise UserError(
                f"{path}, line {number}: {names[0]} must be a text. Got {got}.\nComplete or delete the line. Columns "
                "and keys are clean, corrupted, answer and optionally wrong and target."
            )
        texts[field] = value
    if not texts["answer"].strip():
        if "clean" in record:
            raise UserError(
                f"{path}, line {number}: there is no answer. Write the word that continues the clean input."
            )
        return _from_sentences(texts["clean"], texts["corrupted"], number)
    for field in ("clean", "corrupted"):
        if texts[field].count(BLANK) > 1:
            raise UserError(f"{path}, line {number}: {field} has several blanks ({BLANK}). Leave one.")
    if texts["answer"].strip() == texts["wrong"].strip():
        raise UserError(f"{path}, line {number}: answer and wrong are both {as_written(texts['wrong'])}. Correct one.")
    return PatchPair(**texts, line=number)


def _from_sentences(good: str, bad: str, number: int) -> PatchPair | str:
    """A minimal pair: the answer is the first word after the last difference."""
    words, others = good.split(), bad.split()
    different = [index for index, (one, other) in enumerate(zip(words, others, strict=False)) if one != other]
    place = different[-1] + 1 if different else 0
    if len(words) != len(others) or not different or place == len(words):
        why = "have different numbers of words" if len(words) != len(others) else "do not differ before their last word"
        return f"The sentences of line {number} {why}, so no word follows that both could predict."
    end = re.sub(r"^\w+", "", words[place])  # the punctuation after the answer stays behind the blank
    answer = words[place][: len(words[place]) - len(end)] or words[place]
    rest = [f"{BLANK}{words[place].removeprefix(answer)}", *words[place + 1 :]]
    texts = (" ".join([*side[:place], *rest]) for side in (words, others))
    clean, corrupted = texts
    return PatchPair(clean=clean, corrupted=corrupted, answer=answer, line=number)


def _agreement(num: int) -> Iterator[PatchPair]:
    """Pairs of the generated language that differ in the subject's number, with an attractor of either number."""
    random, lexicon = stream("agreement-pairs"), make_lexicon(200)

    def drawn(kind: str) -> Any:
        return lexicon[kind][int(random.integers(min(len(lexicon[kind]), 30)))]

    for _ in range(num):
        noun, verb, plural, other = drawn("noun"), drawn("intransitive"), random.random() < 0.5, drawn("noun")
        place = f"{drawn('preposition').lemma} the {other.plural if random.random() < 0.5 else other.singular}"
        texts = [f"the {form} {place} {BLANK} ." for form in (noun.singular, noun.plural)]
        forms = [verb.singular, verb.plural]
        clean, corrupted = reversed(texts) if plural else texts
        answer, wrong = reversed(forms) if plural else forms
        yield PatchPair(clean=clean, corrupted=corrupted, answer=answer, wrong=wrong)
