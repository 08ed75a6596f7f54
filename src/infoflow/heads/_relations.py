"""Heads that attend along syntactic relations."""

# N bootstrap block (64), L layer, H head, R relation, D direction (2), O offset, E edge

import copy
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow.flow import Activations, AttentionKey, Need, Reader
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
    maxima,
    membership,
    reachable,
    read_edges,
    token_edges,
    uniform_attention,
    voita_edges,
    word_attention,
)
from ._head_measure import HEAD, HEAD_KEYS, KIND, LAYER, STACK, UNIFORM, SummedMeasure, compact, each_head

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


class RelationScores(SummedMeasure):
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
    needs: frozenset[Need] = frozenset({"attention"})
    by_token = True

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
        self._stack, self._reach = "", _REACH

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
        visible = AttentionRows.of_tokens(mask).admissible.unsqueeze(1)
        blocks = np.zeros(len(mask), dtype=np.int64)
        for name, chosen in fresh._questions(edges, causal=False):
            fresh._count(name, chosen, blocks)
            fresh._add_layers(f"{name}.hits", [fresh._hits(name, one, visible, chosen, blocks) for one in weights])
        rows = [
            {**keys, "accuracy": float(hits.sum() / count.sum()), "baseline": baseline, "count": int(count.sum())}
            for keys, hits, count, baseline in fresh._scores()
        ]
        columns = [LAYER, HEAD, RELATION, DIRECTION, CONVENTION, "accuracy", "baseline", "count"]
        return pd.DataFrame(rows, columns=columns).sort_values(
            [CONVENTION, RELATION, DIRECTION], kind="stable", ignore_index=True
        )

    def update(self, activations: Activations) -> None:
        key: AttentionKey = (self._stack, "self")
        stream = activations.streams[self._stack]
        if self._trees is None or key not in activations.attention or int(stream.words.max()) < 0:
            return
        of_word = membership(stream.words)
        present, counted = of_word.any(1), (of_word & stream.counted.unsqueeze(2)).any(1).cpu().numpy()
        edges = read_edges(self._trees.rows(activations.sentence_ids), present.cpu().numpy(), self._codes)
        causal = activations.model.anatomy.stack(self._stack).causal
        questions = {
            name: chosen.take(counted[chosen.sentence, chosen.start]) for name, chosen in self._questions(edges, causal)
        }
        blocks = activations.blocks.cpu().numpy()
        masks = activations.visible_keys(key)
        uniform = {id(mask): word_attention(uniform_attention(mask), stream.words, self.subwords) for mask in masks}
        visible = {mask: one > 0 for mask, one in uniform.items()}
        for name, chosen in questions.items():
            self._count(name, chosen, blocks)
            of_mask = {mask: self._hits(name, one, visible[mask], chosen, blocks) for mask, one in uniform.items()}
            self._add_layers(f"{name}.uniform", [of_mask[id(mask)] for mask in masks])
        hits: dict[str, list[np.ndarray]] = {name: [] for name in questions}
        for weights, mask in zip(activations.attention[key], masks, strict=True):
            merged = word_attention(weights.float(), stream.words, self.subwords)
            for name, chosen in questions.items():
                hits[name].append(self._hits(name, merged, visible[id(mask)], chosen, blocks))
        for name, layers in hits.items():
            self._add_layers(f"{name}.hits", layers)

    def _questions(self, edges: dict[str, np.ndarray], causal: bool) -> Iterator[tuple[str, Edges]]:
        """The edges of each convention and direction, with the name `convention.direction number`."""
        for convention in self.conventions:
            for number, direction in enumerate(DIRECTIONS):
                voita = convention == "voita"
                chosen = voita_edges(edges, direction) if voita else clark_edges(edges, self._codes)
                if causal:
                    chosen = reachable(chosen, governors_attend=not voita and number == 1)
                yield f"{convention}.{number}", chosen

    def _hits(
        self,
        name: str,
        merged: Float[Tensor, "sentence head word word"],
        visible: Bool[Tensor, "sentence head=1 word word"],
        chosen: Edges,
        blocks: np.ndarray,
    ) -> Float[np.ndarray, "block head relation"]:
        """Edges (or query words, with `multi="any"`) that each head hits."""
        answers = _answers(merged, visible, name).cpu().numpy()
        hit = answers[chosen.sentence, :, chosen.start, chosen.goal].astype(np.float64) * (chosen.goal >= 0)[:, None]
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


def _answers(merged: Tensor, visible: Tensor, name: str) -> Float[Tensor, "sentence head asked word"]:
    """Attention of each query word to each word; `visible` are the words that words may attend to."""
    if name.startswith("voita"):
        return maxima(merged, visible)
    others = visible & ~torch.eye(merged.shape[2], dtype=torch.bool, device=merged.device)
    return maxima(merged, others) if name.endswith("0") else maxima(merged.mT, others.mT)


def _cells(blocks: np.ndarray, cells: np.ndarray, num: int) -> Float[np.ndarray, "block cell"]:
    flat = np.bincount(blocks * num + cells, minlength=NUM_BLOCKS * num)
    return flat.reshape(NUM_BLOCKS, num).astype(np.float64)
