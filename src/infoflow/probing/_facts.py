"""Facts, and the sentences with a blank that query them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from infoflow.foundation import UserError, digest, hash64

SUBJECT, OBJECT = "[X]", "[Y]"
MANUAL = "manual"


@dataclass(frozen=True, kw_only=True, slots=True)
class ClozeFact:
    """A subject, a relation and an object."""

    relation: str
    subject: str
    object: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """A template that queries the object of a relation: [X] is the subject, [Y] the object."""

    relation: str
    template: str
    family: str = MANUAL
    """Origin: written by hand, `mined` from text, `paraphrased` by translation, or the name in a file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """Facts to measure on, others to choose and weigh prompts by, and the prompts. Checked when it is made: no fact
    occurs twice, no subject of a measured fact is trained on in its relation, every template has one [X] and one [Y].

    Raises:
        UserError: A part of a fact is empty, or nothing is left to ask.
    """

    facts: tuple[ClozeFact, ...]
    prompts: tuple[Prompt, ...]
    train: tuple[ClozeFact, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Number of facts left out, by reason."""

    def __post_init__(self) -> None:
        for fact in (*self.facts, *self.train):
            if not (fact.relation.strip() and fact.subject.strip() and fact.object.strip()):
                raise UserError(f"A fact has a relation, a subject and an object. Got {fact}. Complete or delete it.")
        prompts = tuple(dict.fromkeys(prompt for prompt in self.prompts if _is_template(prompt.template)))
        asked = {prompt.relation for prompt in prompts}
        facts = tuple(dict.fromkeys(fact for fact in self.facts if fact.relation in asked))
        measured = {(fact.relation, fact.subject) for fact in facts}
        train = tuple(
            dict.fromkeys(
                one for one in self.train if one.relation in asked and (one.relation, one.subject) not in measured
            )
        )
        counts = {
            "templates without one [X] and one [Y]": sum(not _is_template(one.template) for one in self.prompts),
            "facts of relations without a template": sum(one.relation not in asked for one in self.facts),
            "facts given twice": len(self.facts) - len(set(self.facts)),
            "training facts about measured subjects": len(
                {one for one in self.train if (one.relation, one.subject) in measured}
            ),
        }
        if not facts:
            raise UserError(
                f"No fact can be asked: {len(self.facts)} facts, {len(prompts)} templates with one [X] and one [Y], "
                'and none for the relation of a fact. Give templates such as "[X] was born in [Y] .".'
            )
        for name, value in (("facts", facts), ("prompts", prompts), ("train", train)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "left_out", {**self.left_out, **{name: num for name, num in counts.items() if num}})

    @property
    def relations(self) -> tuple[str, ...]:
        """Relations of the measured facts, in order of first occurrence."""
        return tuple(dict.fromkeys(fact.relation for fact in self.facts))

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(prompt.family for prompt in self.prompts))

    @property
    def objects(self) -> tuple[str, ...]:
        """Every object of any fact, measured or for training, in alphabetical order."""
        return tuple(sorted({fact.object for fact in (*self.facts, *self.train)}))

    @property
    def digest(self) -> str:
        """Sixteen hex digits that identify the facts and prompts."""
        parts = (self.facts, self.train, self.prompts)
        return digest([[repr(one) for one in part] for part in parts])

    def chosen(self, relation: str, num: int, *, train: bool = False) -> list[ClozeFact]:
        """Up to `num` facts of one relation (0: all), by hash; smaller samples nest in larger ones."""
        of_relation = [fact for fact in (self.train if train else self.facts) if fact.relation == relation]
        order = np.argsort([hash64("fact", one.relation, one.subject, one.object) for one in of_relation])
        return [of_relation[index] for index in order[: num or None]]

    def prompts_of(self, relation: str, families: Sequence[str], num: int) -> list[Prompt]:
        """The first `num` templates (0: all) of each family for one relation."""
        chosen = []
        for family in families:
            own = [one for one in self.prompts if (one.relation, one.family) == (relation, family)]
            chosen += own[: num or None]
        return chosen

    def with_objects(self, objects: Sequence[str]) -> "Facts":
        """The facts whose object is in this list; the others are counted.

        Raises:
            UserError: No fact has such an object.
        """
        known = set(objects)
        kept = tuple(fact for fact in self.facts if fact.object in known)
        if not kept:
            raise UserError(
                f"No object of the {len(self.facts):,} facts is one token of every model compared, so nothing can be "
                "asked. Give facts with frequent words as objects, or models with larger vocabularies."
            )
        train = tuple(fact for fact in self.train if fact.object in known)
        dropped = {
            "facts whose object is not one token": len(self.facts) - len(kept),
            "training facts whose object is not one token": len(self.train) - len(train),
        }
        counts = {name: num for name, num in dropped.items() if num}
        return replace(self, facts=kept, train=train, left_out={**self.left_out, **counts})


def _is_template(template: str) -> bool:
    return template.count(SUBJECT) == 1 and template.count(OBJECT) == 1
