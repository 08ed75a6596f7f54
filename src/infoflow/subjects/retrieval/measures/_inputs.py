"""Questions about facts, each with a document, as a reader's input, and the role of every token."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor

from infoflow.corpus import Fact, FactWorld, Question, Vocabulary
from infoflow.foundation import UserError, stream
from infoflow.models import pad_rows

from ..models import NULL

Document = Literal["none", "gold", "random", "conflict", "retrieved"]  # one of `DOCUMENTS`
DOCUMENTS: tuple[Document, ...] = ("none", "gold", "random", "conflict", "retrieved")
"""The empty document, the gold passage, another passage, the gold passage with another object, a retrieved passage."""


class TokenPart(IntEnum):
    """The role of a token in its question, or in the question that its passage may answer."""

    PAD = 0
    SPECIAL = 1  # [CLS], [SEP]
    MASK = 2  # in place of the object
    SUBJECT = 3
    RELATION = 4
    QUESTION = 5  # another word of the question
    EVIDENCE_SUBJECT = 6  # in the passage's answering sentence
    EVIDENCE_RELATION = 7
    EVIDENCE_OBJECT = 8
    EVIDENCE = 9  # another word of the passage; all words of a passage without the answer


EVIDENCE_PARTS = (
    TokenPart.EVIDENCE_SUBJECT,
    TokenPart.EVIDENCE_RELATION,
    TokenPart.EVIDENCE_OBJECT,
    TokenPart.EVIDENCE,
)
"""Roles of the words of a passage."""
_IN_QUESTION = {
    "subject": TokenPart.SUBJECT,
    "relation": TokenPart.RELATION,
    "object": TokenPart.MASK,
    "": TokenPart.QUESTION,
}
_IN_ANSWER = {
    "subject": TokenPart.EVIDENCE_SUBJECT,
    "relation": TokenPart.EVIDENCE_RELATION,
    "object": TokenPart.EVIDENCE_OBJECT,
    "": TokenPart.EVIDENCE,
}


@final
@dataclass(frozen=True, slots=True, eq=False)
class FactInputs:
    """Rows `[CLS] question [SEP] passage [SEP]`, segments 0 and 1, as the input of a `RetrievalModel`'s reader."""

    document: Document
    facts: tuple[Fact, ...]  # the fact of each row
    input_ids: np.ndarray  # int64 (row, token)
    token_type_ids: np.ndarray  # int64 (row, token)
    parts: np.ndarray  # int64 (row, token), values of `TokenPart`
    masks: np.ndarray  # int64 (row, target), positions of the masks; −1: the object has fewer tokens
    candidates: np.ndarray  # int64 (row, choice, target), tokens of all objects of the relation; −1: none
    answers: np.ndarray  # int64 (row,), the currently true object
    others: np.ndarray  # int64 (row,), the object of a conflict document; after an edit, that of the edited index

    def __len__(self) -> int:
        return len(self.facts)

    @property
    def attention_mask(self) -> np.ndarray:
        """int64 (row, token), 0 at padding."""
        return (self.parts != TokenPart.PAD).astype(np.int64)

    def take(self, rows: np.ndarray) -> "FactInputs":
        arrays = {name: getattr(self, name)[rows] for name in _ARRAYS}
        return FactInputs(document=self.document, facts=tuple(self.facts[row] for row in rows), **arrays)

    def batches(self, size: int) -> "list[FactInputs]":
        places = np.arange(len(self))
        return [self.take(places[start : start + size]) for start in range(0, len(self), size)]

    def queries(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """`[CLS] question [SEP]` without the passage, and the padding mask."""
        real = (self.parts != TokenPart.PAD) & (self.token_type_ids == 0)
        longest = int(real.sum(axis=1).max())
        arrays = self.input_ids, real.astype(np.int64)
        ids, mask = (torch.from_numpy(array[:, :longest].copy()).to(device) for array in arrays)
        return ids, mask

    def tensors(self, device: torch.device | str = "cpu") -> dict[str, Tensor]:
        """Arguments of a BERT's forward pass."""
        names = ("input_ids", "attention_mask", "token_type_ids")
        return {name: torch.from_numpy(getattr(self, name)).to(device) for name in names}


_ARRAYS = ("input_ids", "token_type_ids", "parts", "masks", "candidates", "answers", "others")


def fact_inputs(
    world: FactWorld,
    tokenizer: Any,
    facts: Collection[Fact],
    document: Document,
    *,
    passages: Sequence[int] | None = None,
    edited: bool = False,
    limit: int = 128,
    seed: int = 0,
) -> FactInputs:
    """Every fact in the test wordings, with a document, in at most `limit` tokens. Facts without it are left out.

    `passages`, for "retrieved" only, has one id for each of `world.questions(facts)`; −1 (nothing found) stands for the
    empty document. With `edited`, passages and the second answer are those of the edited index. `seed` determines the
    random documents.
    """
    questions = world.questions(facts)
    if (document == "retrieved") != (passages is not None) or (
        passages is not None and len(passages) != len(questions)
    ):
        raise UserError(
            f'passages are needed only for the document "retrieved", one for each of {len(questions):,} questions. '
            f'Got {"none" if passages is None else f"{len(passages):,}"} for "{document}".'
        )
    of_row, rows = list[Fact](), list[_Row]()
    for index, question in enumerate(questions):
        fact = world.facts[question.fact]
        found = _NOTHING if passages is None else [int(passages[index])]
        sentences = _sentences(world, fact, document, found, edited, seed)
        if sentences is not None:
            of_row.append(fact)
            rows.append(_row(question, sentences))
    if not rows:
        raise UserError(f'No fact has a document of the kind "{document}". Choose other facts.')
    others = [one.edited if edited else world.conflict(one) for one in of_row]
    return _inputs(world, tokenizer, document, tuple(of_row), rows, others, limit)


_NOTHING = [NULL]
_Row = tuple[
    list[str], list[TokenPart], list[str], list[TokenPart]
]  # words and parts of the question, and of the passage


def _sentences(
    world: FactWorld, fact: Fact, document: Document, found: list[int], edited: bool, seed: int
) -> list[Question] | None:
    """The sentences of a fact's document; empty for the empty document; None if there is no such document."""
    gold = world.gold(fact, edited)
    if document in ("gold", "conflict"):
        if gold == NULL:
            return None
        return world.passage_sentences(
            gold, edited, {fact.number: world.conflict(fact)} if document == "conflict" else {}
        )
    if document == "random":
        others = [one for one in range(world.num_passages(edited)) if one != gold]
        return world.passage_sentences(int(stream("evidence-random", seed, fact.number).choice(others)), edited)
    if document == "retrieved" and found[0] != NULL:
        return world.passage_sentences(found[0], edited)
    return []


def _row(question: Question, sentences: Sequence[Question]) -> _Row:
    words, parts = list(question.words), [_IN_QUESTION[role] for role in question.roles]
    read, of_read = list[str](), list[TokenPart]()
    for one in sentences:
        answers = one.fact == question.fact
        read += [*one.words, "."]
        of_read += [*(_IN_ANSWER[role] if answers else TokenPart.EVIDENCE for role in one.roles), TokenPart.EVIDENCE]
    return words, parts, read, of_read


def _inputs(
    world: FactWorld,
    tokenizer: Any,
    document: Document,
    facts: tuple[Fact, ...],
    rows: Sequence[_Row],
    others: Sequence[int],
    limit: int,
) -> FactInputs:
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    number = tokenizer.get_vocab()
    encoded = zip(*(_encoded(row, number, vocabulary, limit) for row in rows), strict=True)
    pads = (vocabulary.pad, 0, TokenPart.PAD)
    input_ids, segments, parts = (pad_rows(each, pad)[0].numpy() for each, pad in zip(encoded, pads, strict=True))
    masks = [np.flatnonzero(row == TokenPart.MASK) for row in parts]
    choices = [
        [world.words.object_words(one.relation, index) for index in range(world.config.choices(one.relation))]
        for one in facts
    ]
    num_targets, num_choices = max(map(len, masks)), max(map(len, choices))
    candidates = np.full((len(rows), num_choices, num_targets), -1, dtype=np.int64)
    for row, words in enumerate(choices):
        ids = np.array([[number[word] for word in one] for one in words])
        candidates[row, : ids.shape[0], : ids.shape[1]] = ids
    return FactInputs(
        document=document,
        facts=facts,
        input_ids=input_ids,
        token_type_ids=segments,
        parts=parts,
        masks=np.array([np.pad(one, (0, num_targets - len(one)), constant_values=-1) for one in masks]),
        candidates=candidates,
        answers=np.array([fact.object for fact in facts]),
        others=np.array(others),
    )


def _encoded(
    row: _Row, number: dict[str, int], vocabulary: Vocabulary, limit: int
) -> tuple[list[int], list[int], list[TokenPart]]:
    """Tokens, their segments and their roles."""
    words, parts, read, of_read = row
    encoded = [
        vocabulary.mask if part == TokenPart.MASK else number[word] for word, part in zip(words, parts, strict=True)
    ]
    room = max(limit - len(encoded) - 3, 0)
    tokens = [vocabulary.start, *encoded, vocabulary.end, *(number[word] for word in read[:room]), vocabulary.end]
    segments = [0] * (len(encoded) + 2) + [1] * (len(tokens) - len(encoded) - 2)
    special = TokenPart.SPECIAL
    return tokens, segments, [special, *parts, special, *of_read[:room], special]
