"""The settings of a world of facts."""

from dataclasses import dataclass
from typing import Annotated, Literal

from infoflow.foundation import Limits, Probability, Share, UserError, check_settings

FACTS_VERSION = 1  # raise when the same seed gives other facts or sentences
"""Of the generator: a world is a function of it, its settings and its seed."""

Wording = Literal["different", "same"]
PassageKind = Literal["entity", "pairs"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FactConfig:
    """How many facts there are, who may know them, and how they are written.

    Raises:
        UserError: A setting lies beyond its bound; see `__post_init__` for those that depend on each other.
    """

    entities: Annotated[int, Limits(at_least=2, at_most=10**6)] = 256  # at most given × family
    relations: Annotated[int, Limits(at_least=2, at_most=64)] = 8  # even; the last two are dates of two tokens
    objects: Annotated[int, Limits(at_least=3, at_most=4096)] = 16  # of a pair of relations, which share them
    given: Annotated[int, Limits(at_least=1, at_most=4096)] = 32  # first names
    family: Annotated[int, Limits(at_least=1, at_most=4096)] = 32  # family names
    held_out: Probability = 0.15  # share of facts that stand in a passage and never in a training query
    withheld: Probability = 0.15  # share of facts that stand nowhere: the control of chance
    later: Share = 0.1  # share of entities without fact and passage until the index is edited
    changed_every: Annotated[int, Limits(at_least=1, at_most=10**6)] = 7  # one in so many trained facts changes later
    weights: Annotated[tuple[int, ...], Limits(filled=True)] = (1, 4, 16)  # exposures, of equally many trained facts
    wording: Wording = "different"  # same: queries have the two words of passages for a relation, half the time its own
    passages: PassageKind = "entity"  # what a passage is about: one entity, or two of them in one relation
    zipf: bool = False  # objects by Zipf's law, so that a guess of the most frequent one has a score
    language: Share = 0.25  # share of the training sentences that are of `grammar`, for which no passage helps

    def __post_init__(self) -> None:
        check_settings(self, "facts")
        if self.relations % 2:
            raise UserError(
                f"facts.relations must be even: they come in pairs that share objects. Got {self.relations}.\n"
                "Give one more or one less."
            )
        if self.entities > self.given * self.family:
            raise UserError(
                f"facts.entities must be at most the pairs of names, {self.given * self.family:,}. "
                f"Got {self.entities:,}.\nRaise facts.given or facts.family, or ask for fewer."
            )
        if self.held_out + self.withheld > 1:
            raise UserError(
                "facts.held_out and facts.withheld are shares of the same facts and must not exceed 1 together. Got "
                f"{self.held_out} and {self.withheld}.\nLower one of them."
            )
        if min(self.weights) < 1 or max(self.weights) > 1024:
            raise UserError(f"facts.weights must lie in 1..1,024. Got {list(self.weights)}.")

    @property
    def date_relations(self) -> tuple[int, int]:
        """The two relations whose objects are dates."""
        return self.relations - 2, self.relations - 1

    def choices(self, relation: int) -> int:
        """How many objects the relation has: m of `stored_bits`."""
        return 144 if relation in self.date_relations else self.objects
