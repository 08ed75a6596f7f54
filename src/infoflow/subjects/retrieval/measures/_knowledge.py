"""A model's answers about facts, with each document, after a short training, and against a contradiction."""

import copy
from collections.abc import Collection, Iterator
from typing import Any, Literal

import numpy as np
import pandas as pd

from infoflow._transformers import PreTrainedModel
from infoflow.corpus import Fact, FactWorld, Vocabulary
from infoflow.foundation import NUM_BLOCKS, Scale, UserError, current_display, hash64, scratch_folder
from infoflow.models import stored_bits
from infoflow.objectives import make_objective
from infoflow.representations import TunedLens
from infoflow.results import ratio_estimate
from infoflow.training import TrainConfig, TrainingData, train

from ..models import NULL, Library
from ..objectives._retrieval_lm import retrieval_model
from ..training import QueryRows
from ._answers import OWN, FactReadings, Level, answer_log_probabilities
from ._fact_lens import fact_lens, half_of_entities, lens_answers, require_lens, states_at
from ._inputs import FactInputs
from ._tables import EVERY_WEIGHT, KNOWLEDGE, KNOWLEDGE_CONFLICT, fact_blocks, fact_groups, group_rows, sampled_facts

# A model's knowledge after a short training to answer without a document.

_SHARE = 4  # one entity in four is used for training
_TOKENS = 10**6  # maximum per update, more than the questions of an update have


def elicitation_entities(world: FactWorld) -> frozenset[int]:
    """The quarter of the entities with trained facts that `elicited` trains on, the same for every model."""
    entities = sorted({fact.entity for fact in world.of_kind("trained")}, key=lambda one: hash64("elicited", one))
    if len(entities) < _SHARE:
        raise UserError(
            f"Eliciting teaches a quarter of the entities and tests the others: at least {_SHARE} must have trained "
            f"facts. Got {len(entities)}.\nGenerate a larger world."
        )
    return frozenset(entities[: len(entities) // _SHARE])


def elicited(
    reader: PreTrainedModel,
    world: FactWorld,
    tokenizer: Any,
    seed: int = 0,
    *,
    updates: int = 200,
    rate: float = 3e-4,
    batch: int = 64,
) -> PreTrainedModel:
    """A copy of a reader after a short training to answer without a document.

    A model that always had a document may store facts that it cannot express without one. So the copy learns to
    answer from trained facts of a quarter of the entities, each equally often, in the training wordings. Evaluate it on
    the other entities, as `knowledge(..., reading="elicited")` does. Updates are made as for the variant `closed-book`.

    Args:
        reader: A BERT with the head of a masked LM; it is not changed.
        world: World of the facts.
        tokenizer: The world's tokenizer.
        seed: Seeds the order of the questions.
        updates: Optimiser steps.
        rate: Peak learning rate; warm-up and decay as in every run.
        batch: Questions per update.

    Raises:
        UserError: There are too few entities to split.
    """
    copied: Any = copy.deepcopy(reader).requires_grad_(True)
    data = TrainingData(source=_taught(world, tokenizer), vocabulary=Vocabulary.from_tokenizer(tokenizer))
    config = TrainConfig(
        updates=updates,
        learning_rate=rate,
        batch_sentences=batch,
        batch_tokens=_TOKENS,
        micro_tokens=_TOKENS,
        save_every=0,
        seed=seed,
        precision="fp32",
        device="cuda" if reader.device.type == "cuda" else "cpu",
    )
    objective: Any = make_objective("closed-book", null_share=0.0)
    with scratch_folder() as folder:
        train(objective, config, data, retrieval_model(objective, copied), folder / "elicited")
    return copied.to(reader.device).eval()


def _taught(world: FactWorld, tokenizer: Any) -> QueryRows:
    """Trained facts of the quarter of the entities, in every training wording, as queries without a passage."""
    entities, number = elicitation_entities(world), tokenizer.get_vocab()
    facts = [fact for fact in world.of_kind("trained", "changed") if fact.entity in entities]
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    rows, spans = list[np.ndarray](), list[np.ndarray]()
    for question in world.questions(facts, "train"):
        places = [index for index, role in enumerate(question.roles, start=1) if role == "object"]
        words = [number[word] for word in question.words]
        rows.append(np.array([vocabulary.start, *words, vocabulary.end], dtype=np.int64))
        spans.append(np.array([[places[0], places[-1] + 1]], dtype=np.int64))
    return QueryRows.of_tokens(rows, np.arange(len(rows)), spans, np.full(len(rows), NULL))


# A model's answers about facts, with each document: the table `knowledge`.

Reading = Literal["raw", "elicited"]
MOST_FACTS = 150  # maximum per kind and exposure; the standard error of a share of .5 is then .04
_EDITED_KINDS = ("changed", "later")


def knowledge(
    model: Any,
    world: FactWorld,
    tokenizer: Any,
    *,
    edited: bool = False,
    reading: Reading = "raw",
    documents: Collection[str] | None = None,
    facts: Collection[Fact] | None = None,
    most: int = MOST_FACTS,
    k: int = 2,
    level: Level = "sequence",
    seed: int = 0,
    library: Library | None = None,
) -> pd.DataFrame:
    r"""How often and how confidently each kind of fact is answered, with each document.

    | metric | value                                                               | a guess |
    |--------|---------------------------------------------------------------------|---------|
    | p1     | share of questions whose likeliest object is the right one          | 1 / m   |
    | bits   | \(\log_2 m + \log_2 p(o)\), `stored_bits`, mean, unclipped          | 0       |
    | nats   | \(-\log p(o)\), mean                                                | log m   |
    | p1_old | share answered as before the edit; only for changed and later facts | 1 / m   |
    | p1_new | share answered as in the edited index; only for these facts         | 1 / m   |

    p is renormalised over the m objects of the relation. Questions use the test wordings, two per fact. Documents are
    those of `fact_inputs`, and "own", which marginalises over all candidates and the null passage, as the model does.
    "retrieved" is its best candidate by the prior. The index of a retriever is built here. A kind of facts without such
    a document (such as gold for withheld facts) has no row.

    Args:
        model: A masked LM in evaluation mode, or a `RetrievalModel`, which "retrieved" and "own" need.
        world: World of the facts.
        tokenizer: The world's tokenizer.
        edited: Read the edited index instead; only facts that change or come later are then used.
        reading: Name of this reading; `elicited` tests the model after a short training.
        documents: Documents to use; default: all that the model has.
        facts: Facts to use; default: all, or for an elicited model all facts of entities that it was not trained on.
        most: Maximum number of facts per kind and exposure.
        k: Passages per search, as in training.
        level: Level at which passages are marginalised, "sequence" or "token", as in training.
        seed: Seeds random documents.
        library: Library whose index is used instead of building one; see `question_candidates`. With `edited` it must
            hold the edited passages.

    Raises:
        UserError: A document is unknown or needs a `RetrievalModel`, or no fact is left.
    """
    chosen = sampled_facts(world, most, _in_question(world, edited, reading, facts))
    options: Any = {"edited": edited, "k": k, "level": level, "seed": seed, "passage_library": library}
    readings = FactReadings(model=model, world=world, tokenizer=tokenizer, facts=chosen, **options)
    rows = list[dict[str, Any]]()
    for document, inputs, logs in readings.read(_documents(readings, reading) if documents is None else documents):
        index = "edited" if edited else "as-trained"
        keys = {"document": document, "index": index, "reading": reading, "layer": -1, "places": ""}
        rows += [{**row, **keys} for row in answer_rows(logs, inputs, edited)]
    return KNOWLEDGE.conform(pd.DataFrame(rows))


def answer_rows(logs: np.ndarray, inputs: FactInputs, edited: bool = False) -> Iterator[dict[str, Any]]:
    """Rows `facts, weight, metric` and the estimate, from log-probabilities over choices (row, choice)."""
    facts, rows = inputs.facts, np.arange(len(inputs))
    choices = np.isfinite(logs).sum(axis=1) if len(logs) else np.empty(0)
    said, right, chance = logs.argmax(axis=1), logs[rows, inputs.answers], 1 / choices
    values: dict[str, tuple[np.ndarray, np.ndarray, Scale]] = {}
    if not edited:
        values["p1"] = said == inputs.answers, chance, "share"
        values["bits"] = stored_bits(right, choices.astype(float)).numpy(), np.zeros(len(rows)), "any"
        values["nats"] = -right, np.log(choices), "positive"
    for metric, (numbers, baseline, scale) in values.items():
        yield from group_rows(facts, numbers, baseline, scale, metric=metric)
    later = np.array([fact.kind in _EDITED_KINDS for fact in facts])
    if not later.any():
        return
    now, then = inputs.answers[later], np.array([fact.edited for fact in facts])[later]
    of_later = [fact for fact, one in zip(facts, later, strict=True) if one]
    for metric, wanted in (("p1_old", now), ("p1_new", then)):
        yield from group_rows(of_later, said[later] == wanted, chance[later], "share", metric=metric)


def _in_question(world: FactWorld, edited: bool, reading: Reading, facts: Collection[Fact] | None) -> Collection[Fact]:
    """The given facts, or all that the reading and the index cover."""
    if facts is not None:
        return facts
    taught = elicitation_entities(world) if reading == "elicited" else frozenset()
    return [one for one in world.facts if one.entity not in taught and (not edited or one.kind in _EDITED_KINDS)]


def _documents(readings: FactReadings, reading: Reading) -> tuple[str, ...]:
    """All documents that the model has; fewer with an edited index or after a short training."""
    wanted = ("none",) if reading == "elicited" else ("none", "gold", "retrieved", OWN) if readings.edited else ()
    return tuple(one for one in readings.available if not wanted or one in wanted)


# A model's answers if a document contradicts training: the table `knowledge_conflict`.

CONFLICT_KINDS = ("trained", "changed", "held out")  # kinds of facts that occur in a passage
_OUTPUT = -1


def knowledge_conflict(
    reader: PreTrainedModel,
    world: FactWorld,
    tokenizer: Any,
    *,
    kinds: Collection[str] = CONFLICT_KINDS,
    lens: TunedLens | None = None,
    most: int = MOST_FACTS,
    seed: int = 0,
) -> pd.DataFrame:
    r"""How often a model gives the answer from training, and how often the one from its document, if they differ.

    | metric             | value                                                              | a guess |
    |--------------------|--------------------------------------------------------------------|---------|
    | old                | share answered with the true object, which training asked for      | 1 / m   |
    | document           | share answered with the other object, which is in the passage      | 1 / m   |
    | memorisation_ratio | old / (old + document), of counts; NaN if both are 0               | 1/2     |
    | difference         | \(\log p(o') - \log p(o)\), mean, o′ of the document; at the output | 0       |
    |                    | (`layer` −1), and at each state by the tuned lens                  |         |

    The lens is measured on half of the entities and trained on the others, so its rows cover fewer facts than those of
    the output. The `count` of the ratio is the number of questions with one of the two answers.

    Args:
        reader: A BERT with the head of a masked LM, in evaluation mode.
        world: World of the facts.
        tokenizer: The world's tokenizer.
        kinds: Kinds of facts; those without a passage are left out.
        lens: A tuned lens; default: trained here, see `fact_lens`.
        most: Maximum number of facts per kind and exposure.
        seed: Seeds all training.

    Raises:
        UserError: No fact occurs in a passage, the lens has another shape, or the world has too few entities.

    Source: the ratio is from [@longpre2021entity].
    """
    lens = lens or fact_lens(reader, world, tokenizer, seed=seed)
    require_lens(lens, reader)
    of_kind = [fact for fact in world.facts if fact.kind in kinds]
    facts = sampled_facts(world, most, of_kind)
    inputs = FactReadings(model=reader, world=world, tokenizer=tokenizer, facts=facts).inputs("conflict")
    rows = list(_answered(answer_log_probabilities(reader, inputs), inputs))
    half = half_of_entities(world)
    measured = inputs.take(np.flatnonzero([fact.entity not in half for fact in inputs.facts]))
    logs = lens_answers(reader, states_at(reader, measured, measured.masks), measured, lens)
    for layer, of_layer in enumerate(logs):
        rows += _differences(of_layer, measured, layer)
    return KNOWLEDGE_CONFLICT.conform(pd.DataFrame(rows))


def _answered(logs: np.ndarray, inputs: FactInputs) -> Iterator[dict[str, Any]]:
    said, chance = logs.argmax(axis=1), 1 / np.isfinite(logs).sum(axis=1)
    answered = {"old": said == inputs.answers, "document": said == inputs.others}
    for metric, right in answered.items():
        yield from group_rows(inputs.facts, right, chance, "share", layer=_OUTPUT, metric=metric)
    blocks = fact_blocks(inputs.facts)
    for group in fact_groups(inputs.facts):
        old, read = (np.bincount(blocks[group.rows], one[group.rows], NUM_BLOCKS) for one in answered.values())
        if not (old + read).any() and group.weight == EVERY_WEIGHT:
            current_display().note(
                f"The memorisation ratio of {group.facts} facts is undefined: no answer is one of the two objects."
            )
        numbers = ratio_estimate(old, old + read, 0.5, "share")
        keys = {"facts": group.facts, "weight": group.weight, "layer": _OUTPUT, "metric": "memorisation_ratio"}
        yield {**keys, **numbers}
    yield from _differences(logs, inputs, _OUTPUT)


def _differences(logs: np.ndarray, inputs: FactInputs, layer: int) -> Iterator[dict[str, Any]]:
    rows = np.arange(len(inputs))
    values = logs[rows, inputs.others] - logs[rows, inputs.answers]
    return group_rows(inputs.facts, values, np.zeros(len(rows)), metric="difference", layer=layer)
