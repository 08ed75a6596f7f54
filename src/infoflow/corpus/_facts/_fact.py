"""A fact, and a question about it."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["trained", "changed", "held out", "withheld", "later"]
"""In training queries and the index; likewise, with another object in the edited index; in the index alone; nowhere; of
an entity that the edited index alone knows. The specification's T, U, H, W and S."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One object of one entity in one relation."""

    number: int  # of the world: entity × relations + relation
    entity: int
    relation: int
    kind: Kind
    object: int  # 0..choices(relation) − 1, what training says
    edited: int  # what the edited index says: another one where the fact is changed
    weight: int  # exposures in training relative to others; 0 where it is in no training query

    @property
    def trained(self) -> bool:
        """Whether training queries ask for it."""
        return self.weight > 0


@dataclass(frozen=True, slots=True)
class Question:
    """A sentence about a fact and where its object stands."""

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
        """The sentence with a mask for each word of its object."""
        return " ".join(mask if role == "object" else word for word, role in zip(self.words, self.roles, strict=True))
