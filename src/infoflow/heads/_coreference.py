"""Coreference heads over a corpus with annotated mentions."""

# N bootstrap block (64), L layer, H head, M mention

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow.flow import Activations, Reader
from infoflow.foundation import NUM_BLOCKS, UserError
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._attention_rows import Annotation, maxima
from ._head_measure import HEAD, HEAD_KEYS, KIND, LAYER, STACK, UNIFORM, each_head
from ._word_rows import AbstractWordMeasure, WordAnswers, WordRows, words_with

_BRACKET = re.compile(r"(\()?([^()|\s]+)(\))?|(\))")
_NAME = re.compile(r"^([^-\[]+)")
_KIND = re.compile(r"^[^-\[]+(?:\[[^\]]*\])?-([^-\d\[][^-\[]*)")
_HOLES = ("_", "-", "*", "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Mention:
    """Words start..end (both included) that refer to an entity."""

    entity: str
    start: int
    end: int
    head: int  # its head word
    type: str  # pronoun, proper or nominal; "" if parts of speech are unknown
    kind: str = ""  # kind of the entity, from the brackets: person, place, ...; "" if not given


def read_mentions(
    annotation: Sequence[str], heads: Sequence[int] | None = None, upos: Sequence[str] | None = None
) -> list[Mention]:
    """The mentions of a sentence, sorted by head word.

    Args:
        annotation: For each word its opening and closing brackets: `(12` begins a mention of entity 12, `12)` ends it,
            `(12)` is a mention of one word; several brackets are joined by `|` or nothing. CorefUD's `(e12-person-1`
            has the entity before the first hyphen and its kind after it. `_`, `-` and `*` mean that a word has no
            bracket. Unmatched brackets are dropped.
        heads: Governor of each word: a mention's head word is the first whose governor lies outside it. Without trees
            it is the last word.
        upos: Universal part of speech of each word, for the type.

    >>> [(m.entity, m.start, m.end) for m in read_mentions(["(1", "1)", "(2)|(1)"])]
    [('1', 0, 1), ('2', 2, 2), ('1', 2, 2)]
    """
    open_at: dict[str, list[tuple[int, str]]] = {}
    spans: list[tuple[str, str, int, int]] = []
    for word, text in enumerate(annotation):
        if text in _HOLES:
            continue
        for begins, name, ends, _ in _BRACKET.findall(text):
            match = _NAME.match(name)
            if match is None:
                continue
            entity = match.group(1)
            if begins:
                kind = _KIND.match(name)
                open_at.setdefault(entity, []).append((word, kind.group(1) if kind else ""))
            if ends and open_at.get(entity):
                start, named = open_at[entity].pop()
                spans.append((entity, named, start, word))
    found = [_mention(*span, heads, upos) for span in spans]
    return sorted(found, key=lambda mention: mention.head)


def _mention(
    entity: str, named: str, start: int, end: int, heads: Sequence[int] | None, upos: Sequence[str] | None
) -> Mention:
    inside = range(start, end + 1)
    head = end if heads is None else next((word for word in inside if heads[word] not in inside), end)
    kinds = {"PRON": "pronoun", "PROPN": "proper"}
    kind = "" if upos is None else kinds.get(upos[head], "nominal")
    return Mention(entity=entity, start=start, end=end, head=head, type=kind, kind=named)


def antecedents(mentions: Sequence[Mention], index: int) -> set[int]:
    """Head words of the earlier mentions of the same entity."""
    own = mentions[index]
    return {m.head for m in mentions if m.entity == own.entity and m.head < own.head}


def nearest(mentions: Sequence[Mention], index: int) -> int | None:
    """Head word of the nearest mention before this one."""
    return max((m.head for m in mentions if m.head < mentions[index].head), default=None)


def head_match(mentions: Sequence[Mention], index: int, words: Sequence[str]) -> int | None:
    """Head word of the last mention before this one with the same head word, ignoring case."""
    own = words[mentions[index].head].lower()
    return max(
        (m.head for m in mentions if m.head < mentions[index].head and words[m.head].lower() == own), default=None
    )


TYPES = ("all", "pronoun", "proper", "nominal")
CANDIDATES = ("words", "mentions")

MENTION = Column("mention", "string", "", "all, pronoun, proper or nominal")
HEAD_MATCH = Column(
    "head_match", "float64", "share", "a second control: the last earlier mention with the same head word"
)
HEAD_COREFERENCE = TableSchema(
    name="head_coreference",
    version=2,
    description="Among mentions with an antecedent in the sentence, the share whose head word attends most to the head "
    "word of an antecedent; m words with the same largest weight count 1/m each.",
    made_by="it needs a corpus with coreference annotation, such as CoNLL-2012 or CorefUD, and a plan that does "
    "not leave it out",
    columns=(
        *HEAD_KEYS,
        MENTION,
        HEAD_MATCH,
        UNIFORM,
        *estimate_columns("share", "share of mentions", "the nearest earlier mention", "mentions"),
    ),
)


class Coreference(AbstractWordMeasure):
    """How often a head attends from a mention to one of its antecedents.

    Attention is merged into words, with the diagonal set to 0. A mention's head word follows from the tree if the
    corpus has trees, else it is the last word. In causal attention the antecedent is always visible.

    Args:
        column: The corpus's per-word column with coreference brackets, see `read_mentions`: a column of
            `Corpus.from_tagged`, or of `Corpus.from_conllu(path, misc=("Entity",))`. Without it the table is empty.
        candidates: `"words"`: all other words; `"mentions"`: the head words of earlier mentions.

    Source: [@clark2019], who never released their code for coreference.
    """

    table: ClassVar[TableSchema] = HEAD_COREFERENCE

    def __init__(self, column: str = "entity", candidates: str = "words") -> None:
        super().__init__()
        if candidates not in CANDIDATES:
            raise UserError(f'candidates must be "words" or "mentions". Got {candidates}.')
        self.column, self.candidates = column, candidates
        self._annotation: Annotation | None = None

    def prepare(self, reader: Reader) -> None:
        self._stack = reader.source_stack
        optional = [name for name in ("head", "upos") if name in reader.corpus.columns]
        self._annotation = Annotation.of(reader.corpus, ("words", self.column, *optional))

    def ask(self, activations: Activations) -> Callable[[int], WordAnswers] | None:
        if self._annotation is None:
            return None
        stream = activations.streams[self._stack]
        present, counted = words_with(stream.words >= 0, stream.words), words_with(stream.counted, stream.words)
        mentions = self._mentions(activations.sentence_ids)
        questions = _Questions(mentions, present, counted, activations.blocks.cpu().numpy())
        for name, sums in questions.controls().items():
            self._add(name, sums)
        return None if questions.empty else partial(_Answers, questions, self.candidates)

    def _mentions(self, sentence_ids: np.ndarray) -> list[tuple[list[Mention], Sequence[str]]]:
        assert self._annotation is not None
        names = self._annotation.names
        sentences = (dict(zip(names, row, strict=True)) for row in self._annotation.rows(sentence_ids))
        return [(read_mentions(s[self.column], s.get("head"), s.get("upos")), s["words"]) for s in sentences]

    def result(self) -> pd.DataFrame:
        rows = self._rows() if "all.hits.0" in self._sums else []
        return pd.DataFrame(rows, columns=self.table.column_names)

    def _rows(self) -> list[dict[str, Any]]:
        count, near, match = (self._sums[name] for name in ("count", "nearest", "match"))
        rows = []
        for number, kind in enumerate(TYPES):
            total = count[:, number].sum()
            if total == 0:
                continue
            uniform = [sums[:, 0, number].sum() / total for sums in self._layers("all.uniform")]
            for layer, head, hits in each_head(self._layers("all.hits")):
                estimate = ratio_estimate(hits[:, number], count[:, number], near[:, number].sum() / total, "share")
                where = {STACK: self._stack, KIND: "self", LAYER: layer, HEAD: head}
                controls = {HEAD_MATCH: match[:, number].sum() / total, UNIFORM: uniform[layer]}
                rows.append(where | {MENTION: kind} | controls | estimate)
        return rows


class _Questions:
    """The mentions of a batch that have an antecedent, and the right answers for each."""

    def __init__(
        self,
        sentences: list[tuple[list[Mention], Sequence[str]]],
        present: Bool[np.ndarray, "sentence word"],
        counted: Bool[np.ndarray, "sentence word"],
        blocks: np.ndarray,
    ) -> None:
        self._present, self._blocks = torch.from_numpy(present), blocks
        self._anaphors: list[tuple[int, Mention, set[int], bool, bool]] = []
        self._heads = torch.zeros_like(self._present)  # the head words of all mentions
        for b, (mentions, words) in enumerate(sentences):
            there = [m for m in mentions if m.head < present.shape[1] and bool(present[b, m.head])]
            self._heads[b, [m.head for m in there]] = True
            for index, mention in enumerate(there):
                right = antecedents(there, index)
                if right and counted[b, mention.head]:
                    near, match = nearest(there, index), head_match(there, index, words)
                    self._anaphors.append((b, mention, right, near in right, match in right))

    @property
    def empty(self) -> bool:
        return not self._anaphors

    def controls(self) -> dict[str, np.ndarray]:
        """(64, type) numbers of mentions, and of mentions that each control predicts correctly."""
        sums = {name: np.zeros((NUM_BLOCKS, len(TYPES))) for name in ("count", "nearest", "match")}
        for b, mention, _, near, match in self._anaphors:
            for number in _types(mention):
                for name, score in (("count", 1), ("nearest", near), ("match", match)):
                    sums[name][self._blocks[b], number] += score
        return sums

    @property
    def heads(self) -> np.ndarray:
        """The head word of each mention."""
        return np.array([mention.head for _, mention, *_ in self._anaphors])

    def allowed(self, candidates: str, chosen: np.ndarray) -> Bool[Tensor, "mention word"]:
        """The candidate words of the chosen mentions."""
        found = self._present[[self._anaphors[index][0] for index in chosen]].clone()
        for row, index in zip(found, chosen, strict=True):
            b, mention, *_ = self._anaphors[index]
            if candidates == "mentions":
                row &= self._heads[b]
                row[mention.head :] = False
            row[mention.head] = False
        return found

    def hits(self, shares: Float[Tensor, "mention head word"], chosen: np.ndarray) -> np.ndarray:
        """(64, head, type) sums of the chosen mentions' shares on right answers."""
        sums = np.zeros((NUM_BLOCKS, shares.shape[1], len(TYPES)))
        for index, answers in zip(chosen, shares.cpu().numpy(), strict=True):
            b, mention, right, *_ = self._anaphors[index]
            hit = answers[:, list(right)].sum(1)
            for number in _types(mention):
                sums[self._blocks[b], :, number] += hit
        return sums

    def rows(self, rows: WordRows, chosen: np.ndarray) -> tuple[Tensor, Tensor]:
        """The chosen mentions' weights (mention, head, word) and the words that they may attend to."""
        sentence = torch.tensor([self._anaphors[index][0] for index in chosen])
        word = torch.from_numpy(self.heads[chosen] - rows.first)
        return rows.weights[sentence, :, word], rows.visible[sentence, word]


class _Answers(WordAnswers):
    def __init__(self, questions: _Questions, candidates: str, heads: int) -> None:
        self._questions, self._candidates = questions, candidates
        self._sums = np.zeros((NUM_BLOCKS, heads, len(TYPES)))

    def add(self, rows: WordRows) -> None:
        here = np.flatnonzero(rows.holds(self._questions.heads))
        if len(here):
            weights, visible = self._questions.rows(rows, here)
            allowed = visible & self._questions.allowed(self._candidates, here).to(visible.device)
            shares = maxima(weights.unsqueeze(2), allowed[:, None, None]).squeeze(2)
            self._sums += self._questions.hits(shares, here)

    def sums(self) -> dict[str, np.ndarray]:
        return {"all": self._sums}


def _types(mention: Mention) -> list[int]:
    return [0, TYPES.index(mention.type)] if mention.type else [0]
