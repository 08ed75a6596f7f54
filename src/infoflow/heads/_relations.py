"""Heads that attend along syntactic relations."""

# N bootstrap block (64), L layer, H head, R relation, D direction (2), O offset, E edge

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow.flow import Activations, Reader
from infoflow.foundation import NUM_BLOCKS, UserError, as_tensor, as_written
from infoflow.results import Column, TableSchema, estimate_columns, ratio_estimate

from ._attention_rows import (
    ALL,
    DIRECTIONS,
    MERGES,
    Annotation,
    Array,
    Attention,
    AttentionRows,
    Edges,
    check_attention,
    clark_edges,
    reachable,
    read_edges,
    token_edges,
    voita_edges,
)
from ._head_measure import HEAD, HEAD_KEYS, KIND, LAYER, STACK, UNIFORM, compact, each_head
from ._word_rows import AbstractWordMeasure, WordAnswers, WordRows, words_with

CONVENTIONS = ("voita", "clark")
MULTIPLES = ("per_edge", "any")
_REACH = 64  # Voita's baseline over a corpus: larger offsets are never a relation's most frequent one
_CLARK_OFFSETS = range(-3, 3)

RELATION = Column("relation", "string", "", "dependency label; all (Clark): every word")
DIRECTION = Column("direction", "string", "", "which end attends to the other: dependent→head or head→dependent")
CONVENTION = Column(
    "convention",
    "string",
    "",
    "voita: a word's largest weight, which may be on itself; clark: its largest weight on another word, or, in the "
    "direction head→dependent, the word that attends most to the dependent",
)
OFFSET = Column("offset", "int64", "words", "the baseline's offset from the word that attends")
LEAST = Column("least", "int64", "edges", "relations with fewer edges are left out")
HEAD_RELATIONS = TableSchema(
    name="head_relations",
    version=2,
    description="How often a head's largest weight lies on the other end of a dependency edge, between words. In "
    "causal self-attention, an edge counts only if the attending word comes after the attended one. m words with the "
    "same largest weight count 1/m each.",
    light=True,
    made_by="it needs a corpus with trees: the built-in grammar, a CoNLL-U treebank, or text parsed by spaCy, and a "
    "plan that does not leave it out",
    columns=(
        *HEAD_KEYS,
        RELATION,
        DIRECTION,
        CONVENTION,
        OFFSET,
        LEAST,
        UNIFORM,
        *estimate_columns("share", "share of edges that are hit", "the relation's best fixed offset", "edges"),
    ),
)


class RelationScores(AbstractWordMeasure):
    r"""Accuracy of every head on every dependency relation, by the conventions of Voita and of Clark.

    Attention is first summed into words (`word_attention`); special tokens are left out without renormalisation.

    - `"voita"`: share of edges whose query word (dependent or head) has its largest weight on the other end. A word
      with several dependents of one relation has an edge for each, of which its largest weight can hit only one. The
      baseline is the relation's most frequent offset. A head is syntactic if it exceeds the baseline by at least ten
      percentage points (see `syntactic_heads`).
    - `"clark"`: the diagonal is set to 0. Each dependent's head is predicted from the dependent's row of the attention
      and, transposed, from its column (the word that attends most to it). `all` includes the root and punctuation.
      The baseline is the best offset of −3..2, clamped to the sentence. For a possessor with the possessive clitic 's,
      the prediction for the clitic counts instead.

    Trees belong to the text of the corpus, so only the stack that reads it is measured. Without trees the table is
    empty.

    Args:
        conventions: `"voita"`, `"clark"` or both.
        relations: Labels to report; empty: all.
        minimum: Relations with fewer edges are left out.
        subwords: `"mean"` or `"first"` subword of the query: the `merge` of `word_attention`.
        multi: Voita's counting, `"per_edge"` or `"any"`: see `relation_scores`.

    Source: [@voita2019heads]; [@clark2019], following the authors' code (which, however, reads past a sentence's end).
    """

    table: ClassVar[TableSchema] = HEAD_RELATIONS

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
        if subwords not in MERGES:
            raise UserError(f'subwords must be "mean" or "first". Got {subwords}.')
        if multi not in MULTIPLES:
            raise UserError(f'multi must be "per_edge" or "any". Got {multi}.')
        if minimum < 1:
            raise UserError(f"minimum must be at least 1 edge. Got {minimum}.")
        self.conventions, self.relations, self.minimum = tuple(conventions), tuple(relations), minimum
        self.subwords, self.multi = subwords, multi
        self._trees: Annotation | None = None
        self._codes: dict[str, int] = {}
        self._reach = _REACH

    def prepare(self, reader: Reader) -> None:
        self._stack = reader.source_stack
        self._trees = Annotation.of(reader.corpus, ("words", "head", "deprel"))
        labels = [] if self._trees is None else self._trees.values("deprel")
        self._codes = {label: code for code, label in enumerate([*labels, ALL])}

    def of(
        self, attention: Attention, valid: Array, governors: Array, relations: Sequence[Sequence[str]]
    ) -> pd.DataFrame:
        """Scores computed from arrays, without a model; edges connect tokens, and queries see all valid tokens.

        Args:
            attention: (layer, batch, head, query, key) weights after softmax, without dropout; or a list of layers.
            valid: (batch, token) bool; False: padding or an excluded token, as key and as query.
            governors: (batch, token) index of each token's head; −1 for the root.
            relations: For each sentence the label of each token's edge to its head; padding may be missing.

        Returns:
            Columns layer, head, relation, direction, convention, accuracy, baseline, count.

        Raises:
            UserError: A shape is wrong, a governor lies outside the sentence, or an edge has no label.
        """
        weights, mask = check_attention(attention, valid)
        edges, labels = token_edges(mask.numpy(), as_tensor(governors).numpy(), relations)
        fresh = copy.copy(self)
        fresh._sums, fresh._reach = {}, mask.shape[1] - 1
        fresh._codes = {label: code for code, label in enumerate([*labels, ALL])}
        visible = AttentionRows.of_tokens(mask).admissible
        blocks = np.zeros(len(mask), dtype=np.int64)
        questions = dict(fresh._questions(edges, causal=False))
        for name, chosen in questions.items():
            fresh._count(name, chosen, blocks)
        for layer, one in enumerate(weights):
            answers = _Answers(fresh, questions, tuple(mask.shape), one.shape[1], blocks)
            answers.add(WordRows(first=0, weights=one, visible=visible))
            for name, sums in answers.sums().items():
                fresh._add(f"{name}.hits.{layer}", sums)
        rows = [
            {**keys, "accuracy": float(hits.sum() / count.sum()), "baseline": baseline, "count": int(count.sum())}
            for keys, hits, count, baseline in fresh._scores()
        ]
        columns = [LAYER, HEAD, RELATION, DIRECTION, CONVENTION, "accuracy", "baseline", "count"]
        return pd.DataFrame(rows, columns=columns).sort_values(
            [CONVENTION, RELATION, DIRECTION], kind="stable", ignore_index=True
        )

    def ask(self, activations: Activations) -> Callable[[int], WordAnswers] | None:
        if self._trees is None:
            return None
        stream = activations.streams[self._stack]
        present, counted = words_with(stream.words >= 0, stream.words), words_with(stream.counted, stream.words)
        edges = read_edges(self._trees.rows(activations.sentence_ids), present, self._codes)
        causal = activations.model.anatomy.stack(self._stack).causal
        questions = {
            name: chosen.take(counted[chosen.sentence, chosen.start]) for name, chosen in self._questions(edges, causal)
        }
        blocks = activations.blocks.cpu().numpy()
        for name, chosen in questions.items():
            self._count(name, chosen, blocks)
        return lambda heads: _Answers(self, questions, present.shape, heads, blocks)

    def _questions(self, edges: dict[str, np.ndarray], causal: bool) -> Iterator[tuple[str, Edges]]:
        """The edges of each convention and direction, with the name `convention.direction number`."""
        for convention in self.conventions:
            for number, direction in enumerate(DIRECTIONS):
                voita = convention == "voita"
                chosen = voita_edges(edges, direction) if voita else clark_edges(edges, self._codes)
                if causal:
                    chosen = reachable(chosen, governors_attend=not voita and number == 1)
                yield f"{convention}.{number}", chosen

    def by_relation(
        self, name: str, hit: Float[np.ndarray, "edge head"], chosen: Edges, blocks: np.ndarray
    ) -> Float[np.ndarray, "block head relation"]:
        """Edges (or query words, with `multi="any"`) that each head hits."""
        groups, first = self._groups(name, chosen)
        if groups is not None:
            pooled = np.zeros((len(first), hit.shape[1]))
            np.add.at(pooled, groups, hit)
            hit, chosen = pooled, chosen.take(first)
        cells = blocks[chosen.sentence] * len(self._codes) + chosen.relation
        sums = torch.zeros(NUM_BLOCKS * len(self._codes), hit.shape[1], dtype=torch.float64)
        sums.index_add_(0, torch.from_numpy(cells), torch.from_numpy(hit))
        return sums.numpy().reshape(NUM_BLOCKS, len(self._codes), -1).transpose(0, 2, 1)

    def _groups(self, name: str, chosen: Edges) -> tuple[np.ndarray | None, Any]:
        """With Voita's `multi="any"`: the number of each edge's query word, and each word's first edge."""
        if self.multi == "per_edge" or not name.startswith("voita"):
            return None, slice(None)
        keys = np.stack([chosen.sentence, chosen.start, chosen.relation])
        _, first, groups = np.unique(keys, axis=1, return_index=True, return_inverse=True)
        return groups.ravel(), first

    def _count(self, name: str, chosen: Edges, blocks: np.ndarray) -> None:
        """Add the numbers of edges, and the numbers of hits of each fixed offset."""
        _, first = self._groups(name, chosen)
        self._add(f"{name}.count", _cells(blocks[chosen.sentence[first]], chosen.relation[first], len(self._codes)))
        near = np.arange(-self._reach, self._reach + 1) if name.startswith("voita") else np.array(_CLARK_OFFSETS)
        clamped = near if name.startswith("voita") else np.minimum(near, chosen.last[:, None])
        right = chosen.offset[:, None] == clamped
        edge, offset = np.nonzero(right)
        cells = chosen.relation[edge] * len(near) + offset
        sums = _cells(blocks[chosen.sentence[edge]], cells, len(self._codes) * len(near))
        self._add(f"{name}.offsets", sums.reshape(NUM_BLOCKS, len(self._codes), len(near)))

    def result(self) -> pd.DataFrame:
        rows = [
            {
                STACK: self._stack,
                KIND: "self",
                **keys,
                LEAST: self.minimum,
                **compact(ratio_estimate(hits, count, baseline, "share")),
            }
            for keys, hits, count, baseline in self._scores()
        ]
        return pd.DataFrame(rows, columns=self.table.column_names)

    def _scores(self) -> Iterator[tuple[dict[str, Any], np.ndarray, np.ndarray, float]]:
        """Key columns, hits (64,), edges (64,) and baseline of each head for each relation with enough edges."""
        for name in [name.removesuffix(".hits.0") for name in self._sums if name.endswith(".hits.0")]:
            count, offsets = self._sums[f"{name}.count"], self._sums[f"{name}.offsets"]
            convention, number = name.split(".")
            for relation, code in self._codes.items():
                total = count[:, code].sum()
                if total < self.minimum or (self.relations and relation not in self.relations):
                    continue
                best = int(offsets[:, code].sum(0).argmax())
                offset = best - self._reach if convention == "voita" else _CLARK_OFFSETS[best]
                keys = {RELATION: relation, DIRECTION: DIRECTIONS[int(number)], CONVENTION: convention}
                baseline = float(offsets[:, code, best].sum() / total)
                uniform = [float(sums[:, 0, code].sum() / total) for sums in self._layers(f"{name}.uniform")]
                for layer, head, hits in each_head(self._layers(f"{name}.hits")):
                    control = {UNIFORM: uniform[layer]} if uniform else {}
                    where = {LAYER: layer, HEAD: head, **keys, OFFSET: offset, **control}
                    yield where, hits[:, code], count[:, code], baseline


def relation_scores(
    attention: Attention, valid: Array, governors: Array, relations: Sequence[Sequence[str]], multi: str = "per_edge"
) -> pd.DataFrame:
    r"""How often a head's largest weight is on the other end of a dependency edge.

    For a relation r with edges $E_r$ (dependent d, head g), in the direction dependent → head:

    $$ \mathrm{acc}_r = \frac{1}{|E_r|} \sum_{(d, g) \in E_r} \big[ \arg\max_{j \in K} a_{dj} = g \big] $$

    and with d and g exchanged for head → dependent. K are the valid tokens; roots and edges with an invalid end are
    left out; each of m tied keys counts 1/m. The baseline always predicts the relation's most frequent offset. A head
    is called syntactic if it exceeds the baseline by ten percentage points [@voita2019heads].

    Args:
        attention: (layer, batch, head, query, key) weights after softmax, without dropout; or a list of layers.
        valid: (batch, token) bool; False: padding or an excluded token, as key and as query.
        governors: (batch, token) index of each token's head; −1 for the root.
        relations: For each sentence the label of each token's edge to its head; padding may be missing.
        multi: If a head word has several dependents of r, its largest weight can hit only one of these edges.
            `"per_edge"` counts every edge; `"any"` counts the word once, as a hit if any of its edges is hit.

    Returns:
        Columns layer, head, relation, direction, accuracy, baseline, count.

    Raises:
        UserError: A shape is wrong, a governor lies outside the sentence, or an edge has no label.

    Source: [@voita2019heads].
    """
    measure = RelationScores(conventions=("voita",), minimum=1, multi=multi)
    return measure.of(attention, valid, governors, relations).drop(columns=CONVENTION)


class _Answers(WordAnswers):
    """The edges that each head of a layer hits: 1/m if m words have the same largest weight."""

    def __init__(
        self,
        measure: RelationScores,
        questions: Mapping[str, Edges],
        shape: tuple[int, ...],
        heads: int,
        blocks: np.ndarray,
    ) -> None:
        self._measure, self._questions, self._blocks = measure, questions, blocks
        self._hits = {
            name: torch.zeros(len(chosen.start), heads, dtype=torch.float64) for name, chosen in questions.items()
        }
        self._largest = torch.zeros(shape[0], heads, shape[1], dtype=torch.float64)  # of each column
        self._ties = torch.zeros(shape[0], heads, shape[1], dtype=torch.int64)  # the words that share it

    def add(self, rows: WordRows) -> None:
        visible, number = rows.visible, torch.arange(rows.visible.shape[2], device=rows.visible.device)
        others = visible & (number != rows.first + torch.arange(visible.shape[1], device=number.device).unsqueeze(1))
        if any(name.startswith("voita") for name in self._questions):
            self._add_rows("voita", rows, visible)
        if "clark.0" in self._questions:
            self._add_rows("clark.0", rows, others)
            self._add_columns("clark.1", rows, others)

    def _add_rows(self, convention: str, rows: WordRows, allowed: Bool[Tensor, "sentence row word"]) -> None:
        """Edges from a word of these rows to the word with its largest weight."""
        largest, ties = _largest(rows.weights, allowed, dim=3)
        for name in [name for name in self._questions if name.startswith(convention)]:
            chosen = self._questions[name]
            here = np.flatnonzero(rows.holds(chosen.start) & (chosen.goal >= 0))
            sentence, start, goal = _at(chosen.take(here))
            row = start - rows.first
            best = rows.weights[sentence, :, row, goal] == largest[sentence, :, row]
            best &= allowed[sentence, row, goal].unsqueeze(1)
            self._hits[name][here] = (best / ties[sentence, :, row].clamp(min=1)).double().cpu()

    def _add_columns(self, name: str, rows: WordRows, allowed: Bool[Tensor, "sentence row word"]) -> None:
        """Edges to a word from the word that attends most to it; until all rows are read, hits hold the weights."""
        largest, ties = (one.cpu() for one in _largest(rows.weights, allowed, dim=2))
        largest = largest.double()
        most = torch.maximum(self._largest, largest)
        self._ties = self._ties * (self._largest == most) + ties * (largest == most)
        self._largest = most
        chosen = self._questions[name]
        here = np.flatnonzero(rows.holds(chosen.goal))
        sentence, start, goal = _at(chosen.take(here))
        weights = rows.weights[sentence, :, goal - rows.first, start].double()
        hidden = ~allowed[sentence, goal - rows.first, start].unsqueeze(1)
        self._hits[name][here] = weights.masked_fill(hidden, -1).cpu()

    def sums(self) -> dict[str, Float[np.ndarray, "block head relation"]]:
        hits = dict(self._hits)
        if "clark.1" in hits:
            chosen = self._questions["clark.1"]
            sentence, start, goal = _at(chosen)
            best = (hits["clark.1"] == self._largest[sentence, :, start]) & (goal >= 0).unsqueeze(1)
            hits["clark.1"] = best / self._ties[sentence, :, start].clamp(min=1)
        return {
            name: self._measure.by_relation(name, hit.double().numpy(), self._questions[name], self._blocks)
            for name, hit in hits.items()
        }


def _at(chosen: Edges) -> tuple[Tensor, Tensor, Tensor]:
    """Sentence, query word and goal of each edge."""
    return torch.from_numpy(chosen.sentence), torch.from_numpy(chosen.start), torch.from_numpy(chosen.goal)


def _largest(
    weights: Float[Tensor, "sentence head row word"], allowed: Bool[Tensor, "sentence row word"], dim: int
) -> tuple[Tensor, Tensor]:
    """The largest allowed weight along a dimension, and how many share it; without one, 0 and 0."""
    kept = weights.masked_fill(~allowed.unsqueeze(1), -1)
    if not kept.shape[dim]:
        empty = kept.sum(dim)
        return empty, empty.long()
    largest = kept.amax(dim, keepdim=True)
    ties = ((kept == largest) & (largest >= 0)).sum(dim)
    return largest.squeeze(dim).clamp(min=0), ties


def _cells(blocks: np.ndarray, cells: np.ndarray, num: int) -> Float[np.ndarray, "block cell"]:
    flat = np.bincount(blocks * num + cells, minlength=NUM_BLOCKS * num)
    return flat.reshape(NUM_BLOCKS, num).astype(np.float64)
