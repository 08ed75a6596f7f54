"""`FactWorld`: entities, their facts, passages and questions, and the training text about them."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Literal, final

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers

from infoflow._transformers import PreTrainedTokenizerFast
from infoflow.foundation import hash64_array, stream

from ._columns import Row
from ._fact_language import (
    FACT_LANGUAGE,
    TEST_WORDINGS,
    TRAINING_WORDINGS,
    Fact,
    FactConfig,
    FactWords,
    Kind,
    Question,
    language_words,
    passage_wordings,
    query_wording,
    sentence,
    words_of,
)
from ._grammar import grammar_rows, uniform
from ._tokenizers import SPECIAL_TOKENS, UNK, with_special_tokens

Part = Literal["train", "test"]


@final
@dataclass(frozen=True)
class FactWorld:
    """A world of facts, determined by (config, seed); a larger one extends a smaller one.

    | kind     | in training queries | in a passage                               | share                          |
    |----------|---------------------|--------------------------------------------|--------------------------------|
    | trained  | yes                 | yes                                        | 70 %, `changed` included       |
    | changed  | yes                 | yes; with another object in the edited one | 1 in 7 of these 70 %           |
    | held out | no                  | yes                                        | 15 %                           |
    | withheld | no                  | no                                         | 15 %                           |
    | later    | no                  | only in the edited index                   | all facts of 10 % of the entities |

    A passage's number is its position in `passages()`; the edited index keeps it, and later entities are at the end.
    """

    config: FactConfig
    seed: int

    @cached_property
    def facts(self) -> tuple[Fact, ...]:
        """Every fact, by its number."""
        return tuple(draw_facts(self.config, self.seed))

    @cached_property
    def words(self) -> FactWords:
        """Names, relation words and object words."""
        return words_of(self.config)

    @cached_property
    def names(self) -> tuple[tuple[str, str], ...]:
        """First and family name of each entity, without repetition."""
        given, family = self.words.given, self.words.family
        drawn = stream("facts-names", self.seed).permutation(len(given) * len(family))[: self.config.entities].tolist()
        return tuple((given[one % len(given)], family[one // len(given)]) for one in drawn)

    def of_kind(self, *kinds: Kind) -> list[Fact]:
        """The facts of the given kinds; all facts if no kind is given."""
        return [fact for fact in self.facts if not kinds or fact.kind in kinds]

    def answer(self, fact: Fact, edited: bool = False) -> str:
        """The words of a fact's object, in the original or the edited index."""
        return " ".join(self.words.object_words(fact.relation, fact.edited if edited else fact.object))

    def answers(self, relation: int) -> list[str]:
        """The words of every possible object of the relation, by the object's number."""
        return [" ".join(self.words.object_words(relation, one)) for one in range(self.config.choices(relation))]

    def questions(self, facts: Collection[Fact], part: Part = "test") -> list[Question]:
        """Questions about facts in the wordings of a part: two for testing, eight for training."""
        wordings = TEST_WORDINGS if part == "test" else TRAINING_WORDINGS
        return [self._sentence(fact, query_wording(one, self.config)) for fact in facts for one in wordings]

    def _sentence(self, fact: Fact, wording: tuple[int, int], chosen: int | None = None) -> Question:
        answer = self.words.object_words(fact.relation, fact.object if chosen is None else chosen)
        return sentence(fact.number, self.names[fact.entity], fact.relation, answer, wording, self.words)

    def language_sentences(self, num: int) -> list[list[str]]:
        """The words of the first `num` non-fact sentences of the training text."""
        return [list(row["words"]) for row in grammar_rows(num, self.seed, FACT_LANGUAGE)]

    def passages(self, edited: bool = False) -> list[dict[str, Any]]:
        """Rows `title, text, entity, facts` of the original or the edited index."""
        return [self._passage(number, edited) for number in range(self.num_passages(edited))]

    def num_passages(self, edited: bool = False) -> int:
        """Number of passages in the original or the edited index."""
        return sum(edited or group[0].kind != "later" for group in self._groups)

    def gold(self, fact: Fact, edited: bool = False) -> int:
        """The number of the passage that states a fact; −1: none."""
        return self._gold.get(fact.number, -1) if edited or fact.kind != "later" else -1

    def distractors(self, fact: Fact) -> list[int]:
        """The other passages that name the fact's entity: they answer other questions."""
        name, gold = fact.entity, self.gold(fact)
        here = [number for number, group in enumerate(self._groups) if any(one.entity == name for one in group)]
        return [number for number in here if number != gold and self._groups[number][0].kind != "later"]

    def conflict_passage(self, fact: Fact) -> dict[str, Any]:
        """A fact's passage with another object, for a single query; no index contains it."""
        return self._passage(self._gold[fact.number], edited=False, instead={fact.number: self.conflict(fact)})

    @cached_property
    def _groups(self) -> list[list[Fact]]:
        """The facts of each passage, without withheld ones; passages about later entities come last."""
        groups: dict[Any, list[Fact]] = defaultdict(list)
        partner: dict[int, int] = {}
        for later in (False, True) if self.config.passages == "pairs" else ():
            firsts = self.facts[:: self.config.relations]
            entities = [fact.entity for fact in firsts if (fact.kind == "later") == later]
            partner |= {entity: index // 2 for index, entity in enumerate(entities)}
        for fact in self.facts:
            if fact.kind == "withheld":
                continue
            later = fact.kind == "later"
            about = (partner[fact.entity], fact.relation) if partner else (fact.entity, fact.relation // 2)
            groups[later, *about].append(fact)
        return [groups[key] for key in sorted(groups)]

    @cached_property
    def _gold(self) -> dict[int, int]:
        return {fact.number: number for number, group in enumerate(self._groups) for fact in group}

    @cached_property
    def _wordings(self) -> list[tuple[int, int]]:
        return passage_wordings(np.arange(len(self.facts)), self.seed)

    def passage_sentences(
        self, passage: int, edited: bool = False, instead: Mapping[int, int] | None = None
    ) -> list[Question]:
        """The sentences of a passage with the roles of their words; each ends with a full stop.

        `instead` has objects, by fact number, that replace the true ones.
        """
        group = self._groups[passage]
        chosen = {fact.number: fact.edited if edited else fact.object for fact in group} | dict(instead or {})
        return [self._sentence(one, self._wordings[one.number], chosen[one.number]) for one in group]

    def conflict(self, fact: Fact) -> int:
        """The object that `conflict_passage` states for a fact."""
        return changed_object(fact.object, self.config.choices(fact.relation), fact.number, self.seed, "conflict")

    def _passage(self, number: int, edited: bool, instead: dict[int, int] | None = None) -> dict[str, Any]:
        group = self._groups[number]
        texts = [f"{one.text} ." for one in self.passage_sentences(number, edited, instead)]
        names = [" ".join(self.names[entity]) for entity in dict.fromkeys(fact.entity for fact in group)]
        return {
            "title": " , ".join(names),
            "text": " ".join(texts),
            "entity": names[0],
            "facts": [fact.number for fact in group],
        }

    def tokenizer(self, max_length: int = 128) -> PreTrainedTokenizerFast:
        """One token per word, for facts and the language; the special tokens are 0..4."""
        words = dict.fromkeys([*SPECIAL_TOKENS, *self.words.vocabulary(), *language_words()])
        tokenizer = Tokenizer(models.WordLevel({word: id for id, word in enumerate(words)}, unk_token=UNK))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return with_special_tokens(tokenizer, max_length)

    def training_sentences(self) -> Iterator[Question]:
        """Each trained fact in every training wording, repeated by its weight."""
        for fact in self.facts:
            for _ in range(fact.weight):
                yield from self.questions([fact], "train")


def draw_facts(config: FactConfig, seed: int) -> list[Fact]:
    """A fact for each entity and relation, in that order."""
    kinds = _kinds(config, seed)
    objects = _objects(config, seed)
    weights = _weights(kinds, config, seed)
    facts = []
    for number, (kind, chosen, weight) in enumerate(zip(kinds, objects, weights, strict=True)):
        entity, relation = divmod(number, config.relations)
        edited = chosen
        if kind == "changed":
            edited = changed_object(chosen, config.choices(relation), number, seed, "edited")
        facts.append(Fact(number, entity, relation, kind, chosen, edited, weight))
    return facts


def changed_object(chosen: int, choices: int, fact: int, seed: int, purpose: str) -> int:
    """An object other than the fact's object o, uniform among the m − 1 others: `(o + 1 + U{0..m−2}) mod m`."""
    step = int(hash64_array((f"facts-{purpose}", seed), np.array([fact]))[0] % np.uint64(choices - 1))
    return (chosen + 1 + step) % choices


def _kinds(config: FactConfig, seed: int) -> list[Kind]:
    numbers = np.arange(config.entities * config.relations)
    # Evenly spaced, because names are already in random order, so that the share is exact.
    steps = np.arange(config.entities + 1) * config.later + stream("facts-later", seed).random()
    later = np.repeat(np.diff(np.floor(steps)) > 0, config.relations)
    draws = uniform(("facts-split", seed), numbers)
    changed = hash64_array(("facts-changed", seed), numbers) % np.uint64(config.changed_every) == 0
    names: list[Kind] = ["trained", "changed", "held out", "withheld", "later"]
    known = 1 - config.held_out - config.withheld
    code = np.select([later, draws >= 1 - config.withheld, draws >= known, changed], [4, 3, 2, 1], default=0)
    return [names[one] for one in code.tolist()]


def _objects(config: FactConfig, seed: int) -> list[int]:
    """Uniform (or Zipfian) objects. The two relations of a pair never have the same object for an entity.

    Otherwise the object of an untrained fact could occur with its subject in the query of another fact, which would be
    a leak. Each object alone stays uniform.
    """
    entities = np.arange(config.entities)
    columns = np.empty((config.entities, config.relations), dtype=np.int64)
    for relation in range(config.relations):
        draws = uniform(("facts-object", seed), entities, np.full_like(entities, relation))
        choices = config.choices(relation)
        weights = 1.0 / np.arange(1, choices + 1) if config.zipf else np.ones(choices)
        chances = np.tile(weights, (config.entities, 1))
        if relation % 2:
            chances[entities, columns[:, relation - 1]] = 0.0
        bounds = chances.cumsum(axis=1)
        columns[:, relation] = (draws[:, None] * bounds[:, -1:] >= bounds).sum(axis=1)
    return columns.ravel().tolist()


def _weights(kinds: list[Kind], config: FactConfig, seed: int) -> list[int]:
    """Exposures: consecutive trained facts get each weight once, in random order."""
    weights, counted, order = [], 0, np.empty(0, dtype=int)
    for kind in kinds:
        if kind not in ("trained", "changed"):
            weights.append(0)
            continue
        block, place = divmod(counted, len(config.weights))
        if place == 0:
            order = stream("facts-weights", seed, block).permutation(len(config.weights))
        weights.append(int(config.weights[order[place]]))
        counted += 1
    return weights


FACT_COLUMNS = ("text", "words", "entity", "label")


def fact_rows(world: FactWorld) -> Iterator[Row]:
    """Every trained fact in all its wordings, repeated by its weight, mixed with sentences of the language.

    For a fact, `label` is its number and `entity` the role of each word; a sentence of the language has neither.
    """
    done = 0
    language = grammar_rows(num_language(world, num_queries(world)), world.seed, FACT_LANGUAGE)
    for count, one in enumerate(world.training_sentences(), start=1):
        yield {"text": one.text, "words": list(one.words), "entity": list(one.roles), "label": str(one.fact)}
        for row in islice(language, num_language(world, count) - done):
            words = row["words"]
            yield {"text": row["text"], "words": words, "entity": [""] * len(words), "label": None}
        done = num_language(world, count)


def num_queries(world: FactWorld) -> int:
    """Number of sentences about facts in the training text."""
    return len(TRAINING_WORDINGS) * sum(fact.weight for fact in world.facts)


def num_language(world: FactWorld, queries: int) -> int:
    """Number of sentences of the language in the training text, given its number of queries about facts."""
    return round(queries * world.config.language / (1 - world.config.language))
