"""The settings of a world of facts."""

from dataclasses import dataclass
from typing import Annotated, Literal

from infoflow.foundation import Limits, Probability, Share, UserError, check_settings

FACTS_VERSION = 1  # raise when the same seed gives other facts or sentences
"""Version of the generator: a world depends only on it, its settings and its seed."""

Wording = Literal["different", "same"]
PassageKind = Literal["entity", "pairs"]


@dataclass(frozen=True, kw_only=True, slots=True)
class FactSettings:
    """Settings of a world of facts in a plan."""

    relations: Annotated[int, Limits(at_least=2, at_most=64)] = 8  # even; the last two are dates with two-token objects
    objects: Annotated[int, Limits(at_least=3, at_most=4096)] = 16  # per pair of relations, which share them
    wording: Wording = "different"  # same: queries and passages share two relation words
    passages: PassageKind = "entity"  # one entity per passage, or two entities in one relation
    language: Share = 0.25  # share of the training sentences from `grammar`, for which no passage helps


@dataclass(frozen=True, kw_only=True, slots=True)
class FactConfig(FactSettings):
    """The number of facts, their exposure, and their wording.

    Raises:
        UserError: A setting is out of range; `__post_init__` checks those that depend on each other.
    """

    entities: Annotated[int, Limits(at_least=2, at_most=10**6)] = 256  # at most given × family
    given: Annotated[int, Limits(at_least=1, at_most=4096)] = 32  # first names
    family: Annotated[int, Limits(at_least=1, at_most=4096)] = 32  # family names
    held_out: Probability = 0.15  # share of facts in a passage but in no training query
    withheld: Probability = 0.15  # share of facts that occur nowhere: the chance control
    later: Share = 0.1  # share of entities without facts and passages until the index is edited
    changed_every: Annotated[int, Limits(at_least=1, at_most=10**6)] = 7  # one in this many trained facts changes later
    weights: Annotated[tuple[int, ...], Limits(filled=True)] = (1, 4, 16)  # exposures, with as many trained facts each
    zipf: bool = False  # objects by Zipf's law, so that guessing the most frequent one scores above 0

    def __post_init__(self) -> None:
        check_settings(self, "facts")
        if self.relations % 2:
            raise UserError(
                f"facts.relations must be even: they come in pairs that share objects. Got {self.relations}.\n"
                "Add or remove one."
            )
        if self.entities > self.given * self.family:
            raise UserError(
                f"facts.entities must be at most the number of full names, {self.given * self.family:,}. "
                f"Got {self.entities:,}.\nRaise facts.given or facts.family, or lower facts.entities."
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
        """Number of objects of the relation: m of `stored_bits`."""
        return 144 if relation in self.date_relations else self.objects
