"""Coreference heads over a corpus that says which mentions belong together."""

# N bootstrap block (64), L layer, H head, M mention

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow.flow import Activations, AttentionKey, Need, Reader
from infoflow.foundation import NUM_BLOCKS, UserError
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._annotation import Annotation
from ._head_measure import HEAD_KEYS
from ._mentions import Mention, antecedents, head_match, nearest, read_mentions
from ._summed_measure import SummedMeasure, each_head
from ._word_attention import membership, word_attention

TYPES = ("all", "pronoun", "proper", "nominal")
CANDIDATES = ("words", "mentions")

_SCHEMA = TableSchema(
    name="head_coreference",
    version=1,
    description="Share of mentions with an antecedent in the sentence whose head word attends most to the head word of "
    "one of their antecedents.",
    columns=(
        *HEAD_KEYS,
        Column(name="mention", dtype="string", unit="", description="all, pronoun, proper or nominal"),
        Column(
            name="head_match",
            dtype="float64",
            unit="share",
            description="a second control: the last mention before with the same head word",
        ),
        *estimate_columns("share", "share of mentions", "the nearest mention before", "mentions"),
    ),
)


class Coreference(SummedMeasure):
    """How often a head attends from a mention to an antecedent of it.

    Attention is merged into words, the diagonal set to 0. A mention's head word follows from the tree, where the
    corpus has trees, else it is its last word. In causal attention the antecedent always lies in reach.

    Args:
        column: The corpus's per-word column with coreference brackets, see `read_mentions`: a column of
            `Corpus.from_tagged`, or of `Corpus.from_conllu(path, misc=("Entity",))`. Without it the table is empty.
        candidates: `"words"`: all other words; `"mentions"`: the head words of the mentions before.

    Source: [@clark2019]; their code was never released.
    """

    table: ClassVar[TableSchema] = _SCHEMA
    needs: frozenset[Need] = frozenset({"attention"})

    def __init__(self, column: str = "entity", candidates: str = "words") -> None:
        super().__init__()
        if candidates not in CANDIDATES:
            raise UserError(f'candidates must be "words" or "mentions". Got {candidates}.')
        self.column, self.candidates = column, candidates
        self._annotation: Annotation | None = None
        self._stack = ""

    def prepare(self, reader: Reader) -> None:
        self._stack = reader.source_stack
        optional = [name for name in ("head", "upos") if name in reader.corpus.columns]
        self._annotation = Annotation.of(reader.corpus, ("words", self.column, *optional))

    def update(self, activations: Activations) -> None:
        key: AttentionKey = (self._stack, "self")
        stream = activations.streams[self._stack]
        if self._annotation is None or key not in activations.attention or int(stream.words.max()) < 0:
            return
        present = membership(stream.words).any(1)
        questions = _Questions(self._mentions(activations.sentence_ids), present, activations.blocks.numpy())
        for name, sums in questions.controls().items():
            self._add(name, sums)
        if questions.empty:
            return
        allowed = questions.allowed(self.candidates).to(stream.words.device)
        hits = [
            questions.hits(word_attention(weights.float(), stream.words), allowed)
            for weights in activations.attention[key]
        ]
        self._add_layers("hits", hits)

    def _mentions(self, sentence_ids: np.ndarray) -> list[tuple[list[Mention], Sequence[str]]]:
        assert self._annotation is not None
        names = self._annotation.names
        sentences = (dict(zip(names, row, strict=True)) for row in self._annotation.rows(sentence_ids))
        return [(read_mentions(s[self.column], s.get("head"), s.get("upos")), s["words"]) for s in sentences]

    def result(self) -> pd.DataFrame:
        rows = self._rows() if "hits.0" in self._sums else []
        return pd.DataFrame(rows, columns=self.table.column_names)

    def _rows(self) -> list[dict[str, Any]]:
        count, near, match = (self._sums[name] for name in ("count", "nearest", "match"))
        rows = []
        for number, kind in enumerate(TYPES):
            total = count[:, number].sum()
            if total == 0:
                continue
            for layer, head, hits in each_head(self._layers("hits")):
                estimate = ratio_estimate(hits[:, number], count[:, number], near[:, number].sum() / total, "share")
                where = {"stack": self._stack, "kind": "self", "layer": layer, "head": head}
                rows.append(where | {"mention": kind, "head_match": match[:, number].sum() / total} | estimate)
        return rows


class _Questions:
    """The mentions of a batch that have an antecedent, with what is right for each."""

    def __init__(
        self,
        sentences: list[tuple[list[Mention], Sequence[str]]],
        present: Bool[Tensor, "sentence word"],
        blocks: np.ndarray,
    ) -> None:
        self._present, self._blocks = present.cpu(), blocks
        self._asked: list[tuple[int, Mention, set[int], set[int], bool, bool]] = []
        for b, (mentions, words) in enumerate(sentences):
            there = [m for m in mentions if m.head < present.shape[1] and bool(present[b, m.head])]
            for index, mention in enumerate(there):
                right = antecedents(there, index)
                if right:
                    before = {m.head for m in there if m.head < mention.head}
                    near, match = nearest(there, index), head_match(there, index, words)
                    self._asked.append((b, mention, right, before, near in right, match in right))

    @property
    def empty(self) -> bool:
        return not self._asked

    def controls(self) -> dict[str, np.ndarray]:
        """(64, type) numbers of mentions, and of those that each control gets right."""
        sums = {name: np.zeros((NUM_BLOCKS, len(TYPES))) for name in ("count", "nearest", "match")}
        for b, mention, _, _, near, match in self._asked:
            for number in _types(mention):
                for name, score in (("count", 1), ("nearest", near), ("match", match)):
                    sums[name][self._blocks[b], number] += score
        return sums

    def allowed(self, candidates: str) -> Bool[Tensor, "mention word"]:
        """The words among which each mention chooses."""
        rows = self._present[[b for b, *_ in self._asked]].clone()
        for row, (_, mention, _, before, _, _) in zip(rows, self._asked, strict=True):
            row[mention.head] = False
            if candidates == "mentions":
                row &= torch.isin(torch.arange(len(row)), torch.tensor(sorted(before)))
        return rows

    def hits(
        self, merged: Float[Tensor, "sentence head word word"], allowed: Bool[Tensor, "mention word"]
    ) -> Float[np.ndarray, "block head type"]:
        sentence = [b for b, *_ in self._asked]
        rows = merged[sentence, :, [mention.head for _, mention, *_ in self._asked]]  # mention, head, word
        chosen = rows.masked_fill(~allowed.unsqueeze(1), -1).argmax(2).cpu().numpy()
        sums = np.zeros((NUM_BLOCKS, merged.shape[1], len(TYPES)))
        for (b, mention, right, *_), answers in zip(self._asked, chosen, strict=True):
            hit = np.isin(answers, list(right))
            for number in _types(mention):
                sums[self._blocks[b], :, number] += hit
        return sums


def _types(mention: Mention) -> list[int]:
    return [0, TYPES.index(mention.type)] if mention.type else [0]
