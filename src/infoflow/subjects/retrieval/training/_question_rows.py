"""Rows for training on questions about real text: a question followed by its answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from infoflow.foundation import UserError

from ..models import Library
from ._query_rows import QueryRows


@final
@dataclass(frozen=True, slots=True, eq=False)
class QuestionRows:
    """Questions that can be masked, and their indices among the input."""

    rows: QueryRows
    kept: np.ndarray  # int64 (query,)
    num_cut: int  # queries whose question was truncated


def question_rows(
    questions: Sequence[str],
    answers: Sequence[str],
    ids: np.ndarray,
    tokenizer: Any,
    library: Library,
    gold: np.ndarray,
    *,
    max_length: int = 128,
    answer_tokens: int = 3,
) -> QuestionRows:
    """Queries `[CLS] question answer [SEP]` with the answer as the only span, so that objectives mask it.

    Questions whose answer has no token, or more than `answer_tokens`, are left out. Long questions are truncated at the
    end, never a mask. The number of masks shows the length of the answer.

    Args:
        questions: Their texts.
        answers: The target answer of each.
        ids: A stable number of each, int64.
        tokenizer: Tokenizer of reader and retriever.
        library: The passages.
        gold: The passage that answers each, −1 if none.
        max_length: Maximum number of tokens of a query, special ones included.
        answer_tokens: Maximum number of tokens of an answer.

    Raises:
        UserError: No question is left.
    """
    options: Any = {"add_special_tokens": False, "split_special_tokens": True, "verbose": False}
    asked, wanted = (tokenizer(list(texts), **options).input_ids for texts in (questions, answers))
    kept = np.array([row for row, answer in enumerate(wanted) if 0 < len(answer) <= answer_tokens], dtype=np.int64)
    if not len(kept):
        raise UserError(
            f"No question has an answer of at most {answer_tokens} tokens. Got {len(questions):,} questions.\n"
            "Allow longer answers (retrieval.answer_tokens), or a larger vocabulary (corpus.vocabulary)."
        )
    vocabulary = library.vocabulary
    tokens, spans, num_cut = [], [], 0
    for row in kept.tolist():
        room = max_length - 2 - len(wanted[row])
        num_cut += len(asked[row]) > room
        question = asked[row][: max(room, 0)]
        tokens.append(np.array([vocabulary.start, *question, *wanted[row], vocabulary.end], dtype=np.int64))
        spans.append(np.array([[1 + len(question), 1 + len(question) + len(wanted[row])]], dtype=np.int64))
    rows = QueryRows(
        _Tokens(tokens, np.asarray(ids)[kept]),
        np.arange(len(kept)),
        spans,
        np.asarray(gold)[kept],
        [()] * len(kept),
        library=library.digest,
        vocabulary=vocabulary,
        unknown=int(tokenizer.unk_token_id if tokenizer.unk_token_id is not None else vocabulary.pad),
    )
    return QuestionRows(rows, kept, num_cut)


@final
class _Tokens:
    """Token ids of each query: `TokenRows`."""

    def __init__(self, tokens: Sequence[np.ndarray], ids: np.ndarray) -> None:
        self._tokens = tokens
        self.sentence_ids = ids
        self.lengths = np.array([len(row) for row in tokens], dtype=np.int64)

    def row(self, index: int) -> np.ndarray:
        return self._tokens[index]
