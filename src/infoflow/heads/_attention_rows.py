"""Attention rows that count, their admissible keys, and attention from word to word."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from infoflow.corpus import Corpus, tag_columns
from infoflow.flow import Activations, AttentionKey, PaddedBatch, Reader
from infoflow.foundation import UserError, as_tensor, as_written

# B sentence, H head, Q query, K key


Weights = Float[Tensor, "sentence head query key"]
Pairs = Bool[Tensor, "sentence query key"]
Array = Tensor | np.ndarray
Attention = Array | Sequence[Array]
"""(layer, batch, head, query, key), or a sequence of layers, as in Transformers' `outputs.attentions`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionRows:
    """Which entries of attention matrices count in a statistic. Weights are not renormalised after exclusion.

    What several statistics need of the same weights (`kept`, `largest`, `best`) is computed once, and held until the
    next weights.
    """

    admissible: Pairs  # the query counts, and may attend to this key, which counts as well
    visible: Pairs  # the model lets the query attend to this key, whether it counts or not
    positions: tuple[Int[Tensor, "sentence query"], Int[Tensor, "sentence key"]]
    """Of queries and keys; they count real tokens, so padding does not shift them."""
    _reduced: dict[tuple[str, bool], tuple[Tensor, Tensor]] = field(default_factory=dict)
    _uniform: list[Tensor] = field(default_factory=list)

    @classmethod
    def of_tokens(cls, valid: Bool[Tensor, "sentence token"]) -> "AttentionRows":
        """The rows for self-attention among the valid tokens."""
        admissible = valid.unsqueeze(2) & valid.unsqueeze(1)
        position = torch.arange(valid.shape[1], device=valid.device).expand(valid.shape)
        return cls(admissible=admissible, visible=admissible, positions=(position, position))

    @classmethod
    def of_activations(
        cls,
        activations: Activations,
        key: AttentionKey,
        queries: Bool[Tensor, "sentence query"] | None = None,
        keys: Bool[Tensor, "sentence key"] | None = None,
        visible: Pairs | None = None,
    ) -> "AttentionRows":
        """The rows for one stack and kind of attention.

        `queries` and `keys` are masks of tokens that count; default: all but padding and special tokens. `visible` is
        the mask of the layer in question, one of `Activations.visible_keys`; default: the first layer's.
        """
        from_stream, to_stream = activations.queries_stream(key), activations.keys_stream(key)
        queries = from_stream.valid if queries is None else queries
        keys = to_stream.valid if keys is None else keys
        visible = activations.visible_keys(key)[0] if visible is None else visible
        return cls(
            admissible=queries.unsqueeze(2) & keys.unsqueeze(1) & visible,
            visible=visible,
            positions=(from_stream.position, to_stream.position),
        )

    def extended(self, kind: type["RowsType"], **further: Any) -> "RowsType":
        """The same rows as an instance of a subclass, with the subclass's own fields, or with some fields replaced."""
        own = {name: getattr(self, name) for name in ("admissible", "visible", "positions", "_uniform")}
        same = {} if "admissible" in further else {"_reduced": self._reduced}
        return kind(**own | same | further)

    def _once(self, name: str, weights: Tensor, make: Callable[[], Tensor]) -> Tensor:
        key = name, weights is self.uniform  # the control's reductions stay, those of heads change with the layer
        if key not in self._reduced or self._reduced[key][0] is not weights:
            self._reduced[key] = weights, make()
        return self._reduced[key][1]

    def kept(self, weights: Weights) -> Weights:
        """The weights that count, 0 elsewhere; filled, not multiplied, since rows of padding may hold NaN."""
        return self._once("kept", weights, lambda: weights.masked_fill(~self.admissible.unsqueeze(1), 0))

    def largest(self, weights: Weights) -> Float[Tensor, "sentence head query"]:
        """Each row's largest weight; rows without keys give 0."""
        return self._once("largest", weights, lambda: self.kept(weights).amax(3))

    def best(self, weights: Weights) -> Weights:
        """1/m on each of the m keys that share the largest weight of their row, see `maxima`."""
        return self._once(
            "best", weights, lambda: _shares(self.kept(weights), self.largest(weights), self.admissible.unsqueeze(1))
        )

    @cached_property
    def offset(self) -> Int[Tensor, "sentence query key"]:
        """Key's position minus the query's."""
        queries, keys = self.positions
        return keys.unsqueeze(1) - queries.unsqueeze(2)

    @cached_property
    def queries(self) -> Bool[Tensor, "sentence query"]:
        """Mask of the queries that have at least one key."""
        return self.admissible.any(2)

    @property
    def uniform(self) -> Float[Tensor, "sentence head=1 query key"]:
        """Weights of a control head that attends equally to all keys that a query may attend to.

        As for the model's own heads, weights on keys that do not count are dropped, not redistributed.
        """
        if not self._uniform:
            self._uniform.append(uniform_attention(self.visible))
        return self._uniform[0]


RowsType = TypeVar("RowsType", bound=AttentionRows)


def uniform_attention(visible: Pairs) -> Float[Tensor, "sentence head=1 query key"]:
    """Weights of a head that attends equally to all visible keys, in float32 like a model's softmax."""
    return (visible / visible.sum(2, keepdim=True).clamp(min=1)).unsqueeze(1)


def maxima(weights: Weights, admissible: Bool[Tensor, "sentence #head query key"]) -> Weights:
    """1/m on each of the m admissible keys that share the largest weight of their row, 0 on all others.

    Weights tie only if they are exactly equal; a difference in the last digit decides. A row without keys is 0
    everywhere.
    """
    kept = weights.masked_fill(~admissible, 0)
    return _shares(kept, kept.amax(3), admissible)


def _shares(
    kept: Weights, largest: Float[Tensor, "sentence head query"], admissible: Bool[Tensor, "sentence #head query key"]
) -> Weights:
    best = (kept == largest.unsqueeze(3)).logical_and_(admissible).to(kept.dtype)
    return best.div_(best.sum(3, keepdim=True).clamp_(min=1))


def sum_on(shares: Weights, targets: Sequence[Pairs]) -> Float[Tensor, "sentence head target"]:
    """Sum of `shares`, as from `maxima`, over each set of targets, in float64."""
    chosen = torch.stack(list(targets), dim=1).flatten(2).to(shares)
    return (shares.flatten(2) @ chosen.mT).double()


def sum_queries(scores: Float[Tensor, "sentence head query"], rows: AttentionRows) -> Float[Tensor, "sentence head"]:
    """Sum of the scores over the queries that count, in float64."""
    return scores.masked_fill(~rows.queries.unsqueeze(1), 0).double().sum(2)


def check_attention(
    attention: Attention, valid: Array | None
) -> tuple[Float[Tensor, "layer sentence head token token"], Bool[Tensor, "sentence token"]]:
    """Attention and validity (None: all valid) as tensors of matching shape on the CPU."""
    weights = _stacked(attention) if isinstance(attention, Sequence) else as_tensor(attention)
    if weights.ndim != 5 or weights.shape[3] != weights.shape[4] or 0 in (weights.shape[0], *weights.shape[2:]):
        raise UserError(
            "attention must have shape (layer, batch, head, query, key) with as many queries as keys. "
            f"Got {as_written(list(weights.shape))}. Give all layers: outputs.attentions."
        )
    mask = weights.new_ones(weights.shape[1], weights.shape[3]) if valid is None else as_tensor(valid)
    if mask.shape != (weights.shape[1], weights.shape[3]):
        raise UserError(
            f"valid must have shape (batch, token), {weights.shape[1]} by {weights.shape[3]}, False at padding and "
            f"excluded tokens. Got {as_written(list(mask.shape))}."
        )
    if weights.dtype not in (torch.float32, torch.float64):
        weights = weights.float()
    return weights, mask.bool()


def _stacked(layers: Sequence[Array]) -> Float[Tensor, "layer *rest"]:
    if not all(isinstance(layer, Array) and layer.shape == layers[0].shape for layer in layers) or not layers:
        raise UserError(
            "attention must hold one array of shape (batch, head, query, key) for each layer, the same for all. "
            f"Got {[tuple(getattr(layer, 'shape', ())) for layer in layers]}. Transformers needs "
            'attn_implementation="eager" to return weights.'
        )
    return torch.stack([as_tensor(layer) for layer in layers])


# B sentence, H head, T token, W word
# E edge


# Words of a corpus: their annotation, and word-level attention from subword attention.


class Annotation:
    """Per-word columns of a corpus, read batch by batch, so that they are never in memory as a whole."""

    def __init__(self, corpus: Corpus, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._corpus = corpus
        self._order = np.argsort(corpus.content_ids)
        self._sorted = corpus.content_ids[self._order]

    @classmethod
    def of(cls, corpus: Corpus, names: Sequence[str]) -> "Annotation | None":
        """The columns `names`, or None if the corpus lacks one."""
        return cls(corpus, names) if set(names) <= corpus.columns else None

    def rows(self, sentence_ids: np.ndarray) -> list[tuple[Any, ...]]:
        """The columns of each sentence, in the order of `names`."""
        rows = self._order[np.searchsorted(self._sorted, sentence_ids)]
        part = self._corpus.select(rows)
        return list(zip(*(part.column(name) for name in self.names), strict=True))

    def values(self, name: str) -> list[str]:
        """All values of a column, sorted."""
        return sorted({value for sentence in self._corpus.column(name) for value in sentence})

    def __deepcopy__(self, memo: dict[int, Any]) -> "Annotation":
        return self  # immutable, and the corpus is on disk


class TokenTags:
    """The tags of each token, as numbers of (column, tag) pairs; number 0 stands for all tokens."""

    ALL = "all"

    def __init__(self, reader: Reader, columns: Sequence[str] | None = None) -> None:
        own = [name for name in tag_columns(reader.corpus) if name != "head"]
        self._columns = [name for name in own if columns is None or name in columns]
        self._annotation = Annotation.of(reader.corpus, self._columns) if self._columns else None
        self._source = reader.source_stack
        self.names: list[tuple[str, str]] = [(self.ALL, self.ALL)]
        self._numbers: dict[tuple[str, str], int] = {}

    def of(self, batch: PaddedBatch, stack: str) -> Int[np.ndarray, "tag 3"]:
        """Sentence, token and number of each tag; only the corpus's own text has tags, its translation has none."""
        found: list[tuple[int, int, int]] = []
        if self._annotation is None or stack != self._source:
            return np.empty((0, 3), np.int64)
        words = batch.streams[stack].words.cpu().numpy()
        for sentence, columns in enumerate(self._annotation.rows(batch.sentence_ids)):
            for name, tags in zip(self._columns, columns, strict=True):
                for token in np.flatnonzero((words[sentence] >= 0) & (words[sentence] < len(tags))):
                    found.append((sentence, int(token), self._number(name, str(tags[words[sentence, token]]))))
        return np.array(found, np.int64).reshape(-1, 3)

    def _number(self, column: str, tag: str) -> int:
        if (column, tag) not in self._numbers:
            self._numbers[column, tag] = len(self.names)
            self.names.append((column, tag))
        return self._numbers[column, tag]


MERGES = ("mean", "first")


def word_attention(
    attention: Float[Tensor, "sentence head token token"], words: Int[Tensor, "sentence token"], merge: str = "mean"
) -> Float[Tensor, "sentence head word word"]:
    r"""Attention from word to word: summed over the key word's subwords, averaged over the query word's subwords.

    $$ a_{uv} = \frac{1}{|u|} \sum_{i \in u} \sum_{j \in v} a_{ij} $$

    Rows sum to 1 minus the attention on tokens outside words. With `merge="first"` only the query's first subword
    counts (the default of the authors' function; the paper used the mean).

    Args:
        attention: (batch, head, query, key) weights after softmax.
        words: (batch, token) index of each token's word, from 0; −1 for special tokens and padding, which are dropped.
        merge: `"mean"` or `"first"`.

    Returns:
        (batch, head, word, word); 0 for words without tokens.

    Source: [@clark2019], the authors' code.

    >>> weights = torch.tensor([[0.2, 0.3, 0.5], [0.4, 0.0, 0.6], [0.1, 0.1, 0.8]])[None, None]
    >>> word_attention(weights, torch.tensor([[0, 0, 1]]))
    tensor([[[[0.4500, 0.5500],
              [0.2000, 0.8000]]]])
    """
    if merge not in MERGES:
        raise UserError(f'merge must be "mean" or "first", over the subwords of the query. Got {merge}.')
    member = membership(words).to(attention)
    # Rows of padding may hold NaN, and 0 · NaN is NaN.
    kept = attention.masked_fill((words < 0)[:, None, :, None], 0)
    if merge == "first":
        queries = member * (member.cumsum(1) == 1)
    else:
        queries = member / member.sum(1, keepdim=True).clamp(min=1)
    return queries.mT.unsqueeze(1) @ (kept @ member.unsqueeze(1))


def membership(words: Int[Tensor, "sentence token"]) -> Bool[Tensor, "sentence token word"]:
    """Whether each token belongs to each word."""
    return words.unsqueeze(2) == torch.arange(max(int(words.max()) + 1, 1), device=words.device)


# Dependency edges of a batch, for the two conventions of scoring them.


DIRECTIONS = ("dependent→head", "head→dependent")
ALL = "all"  # label for the edges of all words, including the root's (which no head can predict)
_UNLISTED = ("root", "punct")
_POSSESSIVES = ("poss", "nmod:poss")
_ROOT = -1

Tree = tuple[Sequence[str], Sequence[int], Sequence[str]]  # words, heads, relations


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Edges:
    """Edges of one direction: the query word, and the word that should get its largest weight."""

    sentence: Int[np.ndarray, " edge"]  # row of the batch
    start: Int[np.ndarray, " edge"]  # query word
    goal: Int[np.ndarray, " edge"]  # correct word; −1: none
    relation: Int[np.ndarray, " edge"]  # code
    offset: Int[np.ndarray, " edge"]  # position of the correct word, relative to the word that offsets count from
    last: Int[np.ndarray, " edge"]  # offset of the sentence's last word, relative to the same word

    def take(self, chosen: np.ndarray) -> "Edges":
        """The edges that a mask or indices select."""
        return Edges(**{name: getattr(self, name)[chosen] for name in self.__dataclass_fields__})


def read_edges(
    trees: Sequence[Tree], present: Bool[np.ndarray, "sentence word"], codes: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """Edges of all words with tokens, as columns: sentence, dependent, governor (−1: root), relation, asked, length.

    `asked` is the word whose prediction counts in [@clark2019]: for a possessor, it is the possessive clitic 's.
    """
    rows = [row for b, tree in enumerate(trees) for row in _sentence_edges(b, tree, present[b], codes)]
    names = ("sentence", "dependent", "governor", "relation", "asked", "length")
    table = np.array(rows, dtype=np.int64).reshape(-1, len(names))
    return dict(zip(names, table.T, strict=True))


def _sentence_edges(
    b: int, tree: Tree, present: Bool[np.ndarray, " word"], codes: Mapping[str, int]
) -> Iterator[tuple[int, ...]]:
    words, heads, relations = tree
    there = [w < len(present) and bool(present[w]) for w in range(len(words))]
    for d, (g, relation) in enumerate(zip(heads, relations, strict=True)):
        if not there[d] or (g != _ROOT and not there[g]):
            continue
        clitic = relation in _POSSESSIVES and d + 1 < len(words) and words[d + 1] == "'s" and there[d + 1]
        yield b, d, g, codes[relation], d + 1 if clitic else d, len(words)


def token_edges(
    valid: Bool[np.ndarray, "sentence token"], governors: Int[np.ndarray, "..."], relations: Sequence[Sequence[str]]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The columns of `read_edges` for every valid token whose head is valid or the root, and the sorted labels."""
    if governors.shape != valid.shape or len(relations) != len(valid):
        raise UserError(
            f"governors and relations must give each token of {valid.shape} its head and label. "
            f"Got governors of shape {governors.shape} and {len(relations)} lists of relations."
        )
    sentence, dependent = np.nonzero(valid & (governors >= _ROOT))
    governor = governors[sentence, dependent]
    if governor.size and governor.max() >= valid.shape[1]:
        raise UserError(f"governors must lie in −1..{valid.shape[1] - 1}, token indices. Got {governor.max()}.")
    both = (governor == _ROOT) | valid[sentence, governor]
    sentence, dependent, governor = sentence[both], dependent[both], governor[both]
    columns = (sentence.tolist(), dependent.tolist(), governor.tolist())
    labels = [_label(relations[s], d, s, g) for s, d, g in zip(*columns, strict=True)]
    names = sorted(set(labels))
    edges = {
        "sentence": sentence,
        "dependent": dependent,
        "governor": governor,
        "relation": np.array([names.index(label) for label in labels], dtype=np.int64),
        "asked": dependent,
        "length": (valid * np.arange(1, valid.shape[1] + 1)).max(axis=1, initial=0)[sentence],
    }
    return edges, names


def _label(of_sentence: Sequence[str], token: int, sentence: int, governor: int) -> str:
    if token < len(of_sentence):
        return of_sentence[token]
    if governor == _ROOT:
        return "root"
    raise UserError(
        f"relations must label every token with a head. Sentence {sentence} has no label for token {token}."
    )


def voita_edges(edges: Mapping[str, np.ndarray], direction: str) -> Edges:
    """Edges in one of `DIRECTIONS`: which end attends to the other; roots have no edge."""
    kept = {name: column[edges["governor"] != _ROOT] for name, column in edges.items()}
    ends = kept["dependent"], kept["governor"]
    start, goal = ends if direction == DIRECTIONS[0] else ends[::-1]
    return Edges(
        sentence=kept["sentence"],
        start=start,
        goal=goal,
        relation=kept["relation"],
        offset=goal - start,
        last=kept["length"] - 1 - start,
    )


def clark_edges(edges: Mapping[str, np.ndarray], codes: Mapping[str, int]) -> Edges:
    """Edges for both directions of attention, listed once by relation and once more under the label `ALL`."""
    goal, dependent = edges["governor"], edges["dependent"]
    columns = {
        "sentence": edges["sentence"],
        "start": edges["asked"],
        "goal": goal,
        "relation": edges["relation"],
        "offset": np.where(goal == _ROOT, np.iinfo(np.int64).min, goal - dependent),
        "last": edges["length"] - 1 - dependent,
    }
    twice = {name: np.concatenate([column, column]) for name, column in columns.items()}
    twice["relation"][len(goal) :] = codes[ALL]
    unlisted = [codes[name] for name in _UNLISTED if name in codes]
    return Edges(**twice).take(~np.isin(twice["relation"], unlisted))


def reachable(edges: Edges, governors_attend: bool) -> Edges:
    """The edges that a head can follow: in causal attention, those from a later word to an earlier one."""
    later = edges.offset < 0 if not governors_attend else edges.offset > 0
    return edges.take(later & (edges.goal >= 0))
