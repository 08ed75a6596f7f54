"""Dependency edges of a batch, for the two conventions of scoring them."""

# E edge

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

from infoflow.foundation import UserError

DIRECTIONS = ("dependent→head", "head→dependent")
ALL = "all"
"""Every word's edge, the root's included (which no head can predict)."""
_UNLISTED = ("root", "punct")
_POSSESSIVES = ("poss", "nmod:poss")
_ROOT = -1

Tree = tuple[Sequence[str], Sequence[int], Sequence[str]]  # words, heads, relations


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Edges:
    """Edges of one direction: the query word, and the word that should get its largest weight."""

    sentence: Int[np.ndarray, " edge"]  # row of the batch
    start: Int[np.ndarray, " edge"]  # query word
    goal: Int[np.ndarray, " edge"]  # right word; −1: none
    relation: Int[np.ndarray, " edge"]  # code
    offset: Int[np.ndarray, " edge"]  # of the right word, from the word that fixed offsets are counted from
    last: Int[np.ndarray, " edge"]  # right-most position of the sentence, from the same word

    def take(self, chosen: np.ndarray) -> "Edges":
        """The edges of a mask, or of indices."""
        return Edges(**{name: getattr(self, name)[chosen] for name in self.__dataclass_fields__})


def read_edges(
    trees: Sequence[Tree], present: Bool[np.ndarray, "sentence word"], codes: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """Columns sentence, dependent, governor (−1: root), relation, asked, length of every word with tokens.

    `asked` is the word whose prediction counts under [@clark2019]: a possessive clitic 's answers for the possessor.
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
    valid: Bool[np.ndarray, "sentence token"],
    governors: Int[np.ndarray, "..."],
    relations: Sequence[Sequence[str]],
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The columns of `read_edges` of every valid token whose head is valid or the root, and the labels, sorted.

    Args:
        valid: Tokens that count.
        governors: (batch, token) index of each token's head; −1 for the root.
        relations: For each sentence the label of each token's edge; those of roots and padding may be missing.

    Raises:
        UserError: A shape is wrong, a governor lies outside the sentence, or an edge has no label.
    """
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
    """Queries one end for the other; roots have none."""
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
    """Queries every dependent for its head, in both directions; a second time under `ALL`."""
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
    """In causal attention, only edges whose attending word comes after the attended one."""
    later = edges.offset < 0 if not governors_attend else edges.offset > 0
    return edges.take(later & (edges.goal >= 0))
