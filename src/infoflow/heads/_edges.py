"""Dependency edges of a batch, as the two conventions of scoring them see them."""

# E edge

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int

DIRECTIONS = ("dependent→head", "head→dependent")
ALL = "all"
"""Every word's edge, the root's included (which no head can predict)."""
_UNLISTED = ("root", "punct")
_POSSESSIVES = ("poss", "nmod:poss")
_ROOT = -1

Tree = tuple[Sequence[str], Sequence[int], Sequence[str]]  # words, heads, relations


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Edges:
    """Edges of one direction: from where a head is asked, and where its largest weight should lie."""

    sentence: Int[np.ndarray, " edge"]  # row of the batch
    start: Int[np.ndarray, " edge"]  # word that is asked
    goal: Int[np.ndarray, " edge"]  # word that is right; −1: none is
    relation: Int[np.ndarray, " edge"]  # code
    offset: Int[np.ndarray, " edge"]  # of the right word from the one whose place a fixed offset is counted from
    last: Int[np.ndarray, " edge"]  # right-most place of the sentence, from there too

    def take(self, chosen: np.ndarray) -> "Edges":
        """The edges of a mask, or of indices."""
        return Edges(**{name: getattr(self, name)[chosen] for name in self.__dataclass_fields__})


def read_edges(
    trees: Sequence[Tree], present: Bool[np.ndarray, "sentence word"], codes: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """Columns sentence, dependent, governor (−1: root), relation, asked, length of every word with tokens.

    `asked` is the word whose prediction counts under [@clark2019]: a possessor's clitic 's answers for it.
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


def voita_edges(edges: Mapping[str, np.ndarray], direction: str) -> Edges:
    """The word at one end is asked for the other end; roots have none."""
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
    """Every dependent is asked for its head, in both directions; a second time under `ALL`."""
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
    """In causal attention only edges whose attending word comes after the attended one."""
    later = edges.offset < 0 if not governors_attend else edges.offset > 0
    return edges.take(later & (edges.goal >= 0))
