"""A fact, and a question about it."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["trained", "changed", "held out", "withheld", "later"]
"""Where a fact occurs.

In training queries and the index; the same, with another object in the edited index; only in the index; nowhere; in the
edited index only, for a later entity. These are the specification's T, U, H, W and S.
"""


@dataclass(frozen=True, slots=True)
class Fact:
    """One object of one entity in one relation."""

    number: int  # in the world: entity × relations + relation
    entity: int
    relation: int
    kind: Kind
    object: int  # 0..choices(relation) − 1, in training
    edited: int  # in the edited index: a different one if the fact is changed
    weight: int  # relative exposure in training; 0 if it is in no training query

    @property
    def trained(self) -> bool:
        """Whether it is in training queries."""
        return self.weight > 0


@dataclass(frozen=True, slots=True)
class Question:
    """A sentence about a fact, and the position of its object."""

    fact: int  # number of the fact
    words: tuple[str, ...]
    roles: tuple[str, ...]  # of each word: subject, relation, object, or "" for a function word
    frame: int
    synonym: int

    @property
    def text(self) -> str:
        return " ".join(self.words)

    @property
    def answer(self) -> str:
        """The words of the object."""
        return " ".join(word for word, role in zip(self.words, self.roles, strict=True) if role == "object")

    def masked(self, mask: str = "[MASK]") -> str:
        """The sentence with each word of its object masked."""
        return " ".join(mask if role == "object" else word for word, role in zip(self.words, self.roles, strict=True))
