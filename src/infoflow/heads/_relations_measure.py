"""Syntactic heads over a corpus with gold trees."""

# N bootstrap block (64), L layer, H head, R relation, D direction (2), O offset, E edge

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.flow import Activations, AttentionKey, Need, Reader
from infoflow.foundation import NUM_BLOCKS, UserError, as_written
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._annotation import Annotation
from ._edges import ALL, DIRECTIONS, Edges, clark_edges, reachable, read_edges, voita_edges
from ._head_measure import HEAD_KEYS, compact
from ._relations import MULTIPLES
from ._summed_measure import SummedMeasure, each_head
from ._word_attention import MERGES, membership, word_attention

CONVENTIONS = ("voita", "clark")
_REACH = 64  # Voita's baseline: offsets further away are never a relation's most frequent one
_CLARK_OFFSETS = range(-3, 3)

_SCHEMA = TableSchema(
    name="head_relations",
    version=1,
    description="How often a head's largest weight lies on the other end of a dependency edge, between words. In "
    "causal self-attention only edges count whose attending word comes after the attended one.",
    columns=(
        *HEAD_KEYS,
        Column(name="relation", dtype="string", unit="", description="dependency label; all (Clark): every word"),
        Column(name="direction", dtype="string", unit="", description="which end attends: dependent→head (or back)"),
        Column(
            name="convention",
            dtype="string",
            unit="",
            description="voita: a word's largest weight, itself included; clark: itself excluded, and in the direction "
            "head→dependent the word that attends most to the dependent",
        ),
        Column(name="offset", dtype="int64", unit="words", description="the baseline's offset from the asked word"),
        *estimate_columns("share", "share of edges that are hit", "the relation's best fixed offset", "edges"),
    ),
)


class RelationScores(SummedMeasure):
    r"""Accuracy of every head on every dependency relation, by the conventions of Voita and of Clark.

    Attention is merged into words first (`word_attention`); special tokens leave without renormalisation.

    - `"voita"`: share of edges whose asked word (dependent or head) has its largest weight on the other end. A word
      with several dependents of one relation has an edge for each, of which its argmax can hit one. Baseline: the
      relation's most frequent offset. Syntactic from ten percentage points above it (see `syntactic_heads`).
    - `"clark"`: the diagonal is set to 0; each dependent is asked for its head: by its row, and transposed by its
      column (whose attention on it is largest). `all` includes the root and punctuation. Baseline: the best offset of
      −3..2, clamped to the sentence. The possessor's clitic 's answers for it.

    Trees belong to the corpus's text, so the stack that reads it is measured; without trees the table is empty.

    Args:
        conventions: Which of the two.
        relations: Labels to report; empty: all.
        minimum: Relations with fewer edges are left out.
        subwords: `"mean"` or `"first"` of the query's: the `merge` of `word_attention`.
        multi: Voita's counting, `"per_edge"` or `"any"`: see `relation_scores`.

    Source: [@voita2019heads]; [@clark2019], the authors' code, without its reading past a sentence's end.
    """

    table: ClassVar[TableSchema] = _SCHEMA
    needs: frozenset[Need] = frozenset({"attention"})

    def __init__(
        self,
        conventions: Sequence[str] = CONVENTIONS,
        relations: Sequence[str] = (),
        minimum: int = 100,
        subwords: str = "mean",
        multi: str = "per_edge",
    ) -> None:
        super().__init__()
        if not conventions or set(conventions) - set(CONVENTIONS):
            raise UserError(f"conventions must be among {', '.join(CONVENTIONS)}. Got {as_written(list(conventions))}.")
        if subwords not in MERGES or multi not in MULTIPLES:
            raise UserError(
                f'subwords must be "mean" or "first", multi "per_edge" or "any". Got {subwords} and {multi}.'
            )
        if minimum < 1:
            raise UserError(f"minimum must be at least 1 edge. Got {minimum}.")
        self.conventions, self.relations, self.minimum = tuple(conventions), tuple(relations), minimum
        self.subwords, self.multi = subwords, multi
        self._trees: Annotation | None = None
        self._codes: dict[str, int] = {}
        self._stack = ""

    def prepare(self, reader: Reader) -> None:
        self._stack = reader.source_stack
        self._trees = Annotation.of(reader.corpus, ("words", "head", "deprel"))
        labels = [] if self._trees is None else self._trees.values("deprel")
        self._codes = {label: code for code, label in enumerate([*labels, ALL])}

    def update(self, activations: Activations) -> None:
        key: AttentionKey = (self._stack, "self")
        stream = activations.streams[self._stack]
        if self._trees is None or key not in activations.attention or int(stream.words.max()) < 0:
            return
        present = membership(stream.words).any(1)
        edges = read_edges(self._trees.rows(activations.sentence_ids), present.cpu().numpy(), self._codes)
        questions = dict(self._questions(edges, activations.model.anatomy.stack(self._stack).causal))
        blocks = activations.blocks.cpu().numpy()
        for name, asked in questions.items():
            self._count(name, asked, blocks)
        hits: dict[str, list[np.ndarray]] = {name: [] for name in questions}
        for weights in activations.attention[key]:
            merged = word_attention(weights.float(), stream.words, self.subwords)
            for name, asked in questions.items():
                found = _predictions(merged, present, name)
                hits[name].append(self._hits(name, found, asked, blocks))
        for name, layers in hits.items():
            self._add_layers(f"{name}.hits", layers)

    def _questions(self, edges: dict[str, np.ndarray], causal: bool) -> Iterator[tuple[str, Edges]]:
        """What each convention asks in each direction, by `convention.direction number`."""
        for convention in self.conventions:
            for number, direction in enumerate(DIRECTIONS):
                voita = convention == "voita"
                asked = voita_edges(edges, direction) if voita else clark_edges(edges, self._codes)
                if causal:
                    asked = reachable(asked, governors_attend=not voita and number == 1)
                yield f"{convention}.{number}", asked

    def _hits(
        self, name: str, found: Int[Tensor, "sentence head word"], asked: Edges, blocks: np.ndarray
    ) -> Float[np.ndarray, "block head relation"]:
        """Edges (or asked words, with `multi="any"`) that each head hits."""
        answers = found.cpu().numpy()[asked.sentence, :, asked.start]
        hit = (answers == asked.goal[:, None]).astype(np.float64)
        groups, first = self._groups(name, asked)
        if groups is not None:
            pooled = np.zeros((len(first), hit.shape[1]))
            np.maximum.at(pooled, groups, hit)
            hit, asked = pooled, asked.take(first)
        cells = blocks[asked.sentence] * len(self._codes) + asked.relation
        sums = torch.zeros(NUM_BLOCKS * len(self._codes), hit.shape[1], dtype=torch.float64)
        sums.index_add_(0, torch.from_numpy(cells), torch.from_numpy(hit))
        return sums.numpy().reshape(NUM_BLOCKS, len(self._codes), -1).transpose(0, 2, 1)

    def _groups(self, name: str, asked: Edges) -> tuple[np.ndarray | None, Any]:
        """With Voita's `multi="any"`: the number of each edge's asked word, and each word's first edge."""
        if self.multi == "per_edge" or not name.startswith("voita"):
            return None, slice(None)
        keys = np.stack([asked.sentence, asked.start, asked.relation])
        _, first, groups = np.unique(keys, axis=1, return_index=True, return_inverse=True)
        return groups.ravel(), first

    def _count(self, name: str, asked: Edges, blocks: np.ndarray) -> None:
        """Edges, and those that each fixed offset hits."""
        _, first = self._groups(name, asked)
        self._add(f"{name}.count", _cells(blocks[asked.sentence[first]], asked.relation[first], len(self._codes)))
        near = np.arange(-_REACH, _REACH + 1) if name.startswith("voita") else np.array(_CLARK_OFFSETS)
        clamped = near if name.startswith("voita") else np.minimum(near, asked.last[:, None])
        right = asked.offset[:, None] == clamped
        edge, offset = np.nonzero(right)
        cells = asked.relation[edge] * len(near) + offset
        sums = _cells(blocks[asked.sentence[edge]], cells, len(self._codes) * len(near))
        self._add(f"{name}.offsets", sums.reshape(NUM_BLOCKS, len(self._codes), len(near)))

    def result(self) -> pd.DataFrame:
        rows = [row for name in self._sums if name.endswith(".hits.0") for row in self._question_rows(name[:-7])]
        return pd.DataFrame(rows, columns=self.table.column_names)

    def _question_rows(self, name: str) -> Iterator[dict[str, Any]]:
        layers = self._layers(f"{name}.hits")
        count, offsets = self._sums[f"{name}.count"], self._sums[f"{name}.offsets"]
        convention, number = name.split(".")
        for relation, code in self._codes.items():
            total = count[:, code].sum()
            if total < self.minimum or (self.relations and relation not in self.relations):
                continue
            best = int(offsets[:, code].sum(0).argmax())
            offset = best - _REACH if convention == "voita" else _CLARK_OFFSETS[best]
            keys = {"relation": relation, "direction": DIRECTIONS[int(number)], "convention": convention}
            baseline = offsets[:, code, best].sum() / total
            for layer, head, hits in each_head(layers):
                estimate = compact(ratio_estimate(hits[:, code], count[:, code], baseline, "share"))
                where = {"stack": self._stack, "kind": "self", "layer": layer, "head": head}
                yield {**where, **keys, "offset": offset, **estimate}


def _predictions(merged: Tensor, present: Tensor, name: str) -> Int[Tensor, "sentence head word"]:
    """The word that each word answers with."""
    weights = merged.masked_fill(~present[:, None, None, :], -1)
    if name.startswith("voita"):
        return weights.argmax(3)
    weights = weights.masked_fill(~present[:, None, :, None], -1)
    weights.diagonal(dim1=2, dim2=3).zero_()
    return weights.argmax(3 if name.endswith("0") else 2)


def _cells(blocks: np.ndarray, cells: np.ndarray, num: int) -> Float[np.ndarray, "block cell"]:
    flat = np.bincount(blocks * num + cells, minlength=NUM_BLOCKS * num)
    return flat.reshape(NUM_BLOCKS, num).astype(np.float64)
