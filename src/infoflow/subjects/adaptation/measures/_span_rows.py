"""Questions with windows of their passages as token ids, and the position of the answer in each window."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from infoflow._transformers import PreTrainedTokenizerBase
from infoflow.corpus import Corpus, Sentence
from infoflow.foundation import UserError, current_display
from infoflow.objectives import Example

from ._task_rows import SEGMENTS, rows_digest

NOWHERE = "answer not in the passage"


class AnswerCharacters(NamedTuple):
    """Characters of a passage, from `start` to before `end`."""

    start: int
    end: int


def place_of(text: str, answer: str, start: int) -> AnswerCharacters | None:
    """The characters of `answer` at `start`, or else its nearest occurrence, ignoring case and spacing.

    None if the passage does not contain it. White space around the answer is not included.
    """
    words = answer.split()
    start += len(answer) - len(answer.lstrip())
    if not words:
        return None
    if text.startswith(answer.strip(), start):
        return AnswerCharacters(start, start + len(answer.strip()))
    pattern = re.compile(r"\s+".join(map(re.escape, words)), re.IGNORECASE)
    found = [AnswerCharacters(*match.span()) for match in pattern.finditer(text)]
    return min(found, key=lambda place: abs(place.start - start), default=None)


def first_place(sentence: Sentence) -> AnswerCharacters | None:
    """The position of the first of a question's answers that occurs in the passage."""
    starts = sentence.answer_starts or [0] * len(sentence.answers or ())
    places = (
        place_of(sentence.text, answer, start) for answer, start in zip(sentence.answers or (), starts, strict=True)
    )
    return next((place for place in places if place is not None), None)


def askable_spans(corpus: Corpus) -> tuple[Corpus, Mapping[str, int]]:
    """The questions without an answer or whose answer occurs in the passage, and why how many others were left out."""
    corpus.require("question", "answers")
    spans = [(one, first_place(one)) for one in corpus]
    kept = np.array([not one.answers or place is not None for one, place in spans])
    if moved := sum(_is_moved(one, place) for one, place in spans if place is not None):
        current_display().note(
            f"{corpus.name}: in {moved:,} of {len(corpus):,} questions the answer is not at the stated character; "
            "the nearest occurrence is used."
        )
    if not kept.any():
        raise UserError(
            f"The answers of {corpus.name} must occur in its passages. None of {len(corpus):,} does, such as "
            f"{(corpus[0].answers or [''])[0][:60]!r}.\nUse the passage as text, or tune a model that "
            "generates answers."
        )
    if kept.all():
        return corpus, {}
    left_out = int((~kept).sum())
    current_display().note(f"{corpus.name}: {left_out} questions whose answer is not in the passage were left out.")
    return corpus.select(kept), {NOWHERE: left_out}


def _is_moved(sentence: Sentence, place: AnswerCharacters) -> bool:
    """Whether the position differs from all annotated ones, apart from white space."""
    starts = sentence.answer_starts
    gaps = (sentence.text[start : place.start] for start in starts or () if start <= place.start)
    return bool(starts) and not any(not gap.strip() for gap in gaps)


# Questions with windows of their passages as token ids: `ExampleRows` of a span task.

UNCOVERED = "answer that no token covers"
CUT = "answer longer than a window"
WITHIN = "answer that begins or ends within a token, next to another letter or digit of it"
LEFT_OUT = -1  # start and end in a window without a target, because the answer cannot be marked

_FEWEST = 8  # minimum number of passage tokens in a window


class WindowSize(NamedTuple):
    """Sizes for cutting passages into windows, in tokens."""

    max_length: int  # total length of question, window and special tokens
    doc_stride: int
    query_length: int


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Window:
    """A question with a part of its passage."""

    example: int  # row of the corpus
    input_ids: np.ndarray  # int64 (token,)
    segments: np.ndarray
    """int64 (token,): 1 for tokens that the tokenizer assigns to the passage; all 0 if it has no segments."""
    offsets: np.ndarray
    """int64 (token, 2): characters of the passage that a token covers, (-1, -1) outside of the passage."""
    best: np.ndarray  # bool (token,): passage tokens that have more context in this window than in any other
    null: int  # position that represents "no answer": [CLS], or the first position
    start: int  # position of the answer's first token; `null` if the window lacks it; or LEFT_OUT
    end: int  # position of the answer's last token, with the same exceptions


@final
class SpanRows:
    """The windows of every question of a corpus; window i belongs to corpus row `examples[i]`.

    A window begins every `doc_stride` tokens of the passage, or every half window if that is less, so that windows
    overlap and together cover every token. The question is truncated to its first `query_length` tokens.
    """

    def __init__(self, corpus: Corpus, tokenizer: PreTrainedTokenizerBase, size: WindowSize) -> None:
        """"""
        corpus.require("question", "answers")
        if not tokenizer.is_fast:
            raise UserError(
                "A span task needs a tokenizer that reports the characters of each token, one with a "
                f"tokenizer.json. Got a {type(tokenizer).__name__}.\nLoad the model's fast tokenizer."
            )
        unmarked: Counter[str] = Counter()
        self.windows: tuple[Window, ...] = tuple(_windows(corpus, tokenizer, size, unmarked))
        self.num_within = unmarked.pop(WITHIN, 0)
        """Number of questions whose answer begins or ends within a token ("9%" in 19%): the whole tokens are marked."""
        self.left_out: Mapping[str, int] = dict(unmarked)
        """Number of questions whose windows have no target, by reason."""
        _tell(corpus, unmarked, self.num_within)
        self.examples = np.array([window.example for window in self.windows], dtype=np.int64)
        self.sentence_ids: np.ndarray = corpus.ids[self.examples]
        self.lengths: np.ndarray = np.array([len(window.input_ids) for window in self.windows], dtype=np.int64)
        arrays = ((one.input_ids, one.segments, np.array([one.start, one.end], dtype=np.int64)) for one in self.windows)
        self.digest = rows_digest("span windows", (array.tobytes() for each in arrays for array in each))

    def row(self, index: int) -> np.ndarray:
        """Token ids of a window, special tokens included."""
        return self.windows[index].input_ids

    def example(self, index: int) -> Example:
        """The window as one text, labelled with `token_type_ids` of its tokens, and `start` and `end` of the answer."""
        window = self.windows[index]
        labels = {SEGMENTS: window.segments, "start": np.array(window.start), "end": np.array(window.end)}
        return Example(texts=(window.input_ids,), labels=labels)


def _windows(
    corpus: Corpus, tokenizer: PreTrainedTokenizerBase, size: WindowSize, unmarked: Counter[str]
) -> Iterator[Window]:
    tokenizer = copy(tokenizer)
    tokenizer.truncation_side = "right"  # the overflow goes into the next window
    for row, sentence in enumerate(corpus):
        question, room = _shortened(str(sentence.question), tokenizer, size)
        step = min(size.doc_stride, max(room // 2, 1))
        found: Any = tokenizer(
            question,
            sentence.text,
            truncation="only_second",
            max_length=size.max_length,
            stride=room - step,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_token_type_ids=True,
            # A passage may contain "[SEP]" as text, which must not become the control token.
            split_special_tokens=True,
        )
        cuts = [_window(found, index, tokenizer.cls_token_id) for index in range(len(found["input_ids"]))]
        best = _most_context([cut["offsets"] for cut in cuts], step)
        spans, remark = _marked(sentence, cuts)
        if remark:
            unmarked[remark] += 1
        for cut, seen, (start, end) in zip(cuts, best, spans, strict=True):
            yield Window(example=row, best=seen, start=start, end=end, **cut)


def _shortened(question: str, tokenizer: Any, size: WindowSize) -> tuple[str, int]:
    """The truncated question, and the number of passage tokens that fit into a window."""
    options: dict[str, Any] = {"add_special_tokens": False, "truncation": True, "max_length": size.query_length}
    options |= {"split_special_tokens": True}
    ends = [end for _, end in tokenizer(question, return_offsets_mapping=True, **options)["offset_mapping"]]
    question = question[: max(ends, default=0)]
    taken = len(tokenizer(question, **options)["input_ids"]) + tokenizer.num_special_tokens_to_add(pair=True)
    if size.max_length - taken < _FEWEST:
        raise UserError(
            f"A window needs room for at least {_FEWEST} passage tokens in addition to a question of {taken} tokens, "
            f"special ones included. Got max_length {size.max_length}.\n"
            f"Raise it, or lower query_length (now {size.query_length})."
        )
    return question, size.max_length - taken


def _window(found: Any, index: int, cls: int | None) -> dict[str, Any]:
    ids = np.array(found["input_ids"][index], dtype=np.int64)
    of_passage = np.array([side == 1 for side in found.sequence_ids(index)])
    offsets = np.array(found["offset_mapping"][index], dtype=np.int64)
    offsets[~of_passage] = -1
    places = np.flatnonzero(ids == cls) if cls is not None else np.empty(0)
    null = int(places[0]) if len(places) else 0
    types = np.array(found[SEGMENTS][index], dtype=np.int64)
    return {"input_ids": ids, "segments": types, "offsets": offsets, "null": null}


def _most_context(offsets: list[np.ndarray], step: int) -> list[np.ndarray]:
    """Passage tokens of each window that have more context in it than in other windows, bool (token,).

    A token's context is the smaller of its distances to both ends of the window, plus a hundredth of the window's
    length; the first window wins ties. Window i begins at token i · `step` of the passage.
    """
    inside = [each[:, 0] >= 0 for each in offsets]
    counts = [int(each.sum()) for each in inside]
    context = np.full((len(offsets), step * (len(offsets) - 1) + counts[-1]), -1.0)
    for index, count in enumerate(counts):
        ranks = np.arange(count)
        context[index, index * step : index * step + count] = np.minimum(ranks, ranks[::-1]) + 0.01 * count
    first = context.argmax(axis=0)
    best = []
    for index, (seen, count) in enumerate(zip(inside, counts, strict=True)):
        chosen = np.zeros(len(seen), dtype=bool)
        chosen[seen] = first[index * step : index * step + count] == index
        best.append(chosen)
    return best


def _marked(sentence: Sentence, cuts: list[dict[str, Any]]) -> tuple[list[tuple[int, int]], str]:
    """Start and end of the answer in each window, and why it cannot be marked, or `WITHIN` ("" for neither)."""
    nulls = [(cut["null"], cut["null"]) for cut in cuts]
    if not sentence.answers:
        return nulls, ""
    nothing = [(LEFT_OUT, LEFT_OUT)] * len(cuts)
    place = first_place(sentence)
    if place is None:
        return nothing, NOWHERE
    inside = [_inside(cut["offsets"], place) for cut in cuts]
    if not any(len(each) for each in inside):
        return nothing, UNCOVERED
    first, end = _covered(inside, cuts)
    spans = [_whole(cut["offsets"], each, first, end) for cut, each in zip(cuts, inside, strict=True)]
    if not any(spans):
        return nothing, CUT
    around = sentence.text[first : place.start] + sentence.text[place.end : end]
    remark = WITHIN if any(sign.isalnum() for sign in around) else ""
    return [span or null for span, null in zip(spans, nulls, strict=True)], remark


def _inside(offsets: np.ndarray, place: AnswerCharacters) -> np.ndarray:
    """Positions of the tokens that overlap the answer."""
    return np.flatnonzero((offsets[:, 0] < place.end) & (offsets[:, 1] > place.start) & (offsets[:, 0] >= 0))


def _covered(inside: list[np.ndarray], cuts: list[dict[str, Any]]) -> tuple[int, int]:
    """Start and end of the characters that tokens of the answer cover, over all windows."""
    spans = [cut["offsets"][each] for cut, each in zip(cuts, inside, strict=True) if len(each)]
    return min(int(span[:, 0].min()) for span in spans), max(int(span[:, 1].max()) for span in spans)


def _whole(offsets: np.ndarray, inside: np.ndarray, first: int, end: int) -> tuple[int, int] | None:
    """First and last token of the answer in a window; None if the window lacks some of its tokens."""
    if len(inside) == 0 or offsets[inside[0], 0] != first or offsets[inside[-1], 1] != end:
        return None
    return int(inside[0]), int(inside[-1])


def _tell(corpus: Corpus, unmarked: Counter[str], num_within: int) -> None:
    if num_within:
        current_display().note(f"{corpus.name}: {num_within} answers start or end within a token, which is included.")
    for reason, count in unmarked.items():
        current_display().note(f"{corpus.name}: {count} questions are not trained on: {reason}.")
    if unmarked.total() == len(corpus):
        reason, _ = unmarked.most_common(1)[0]
        raise UserError(
            f"A span task needs answers that consist of passage tokens. In {corpus.name} none of {len(corpus):,} "
            f"questions has one ({reason}).\nCheck the passages and the answers, or raise the length of a window."
        )
