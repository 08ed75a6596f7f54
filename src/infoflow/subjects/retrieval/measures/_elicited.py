"""A model's knowledge after a short training to answer without a document."""

import copy
from typing import Any, final

import numpy as np
from transformers import PreTrainedModel

from infoflow.corpus import FactWorld, Vocabulary
from infoflow.foundation import UserError, digest, hash64, scratch_folder
from infoflow.objectives import Example, make_objective
from infoflow.training import TrainConfig, TrainingData, train

from ..models import NULL
from ..objectives._retrieval_lm import retrieval_model

_SHARE = 4  # one entity in this many is used for training
_TOKENS = 10**6  # per update, more than its questions have


def elicitation_entities(world: FactWorld) -> frozenset[int]:
    """The quarter of the entities with trained facts that `elicited` trains on, the same for every model.

    Raises:
        UserError: There are too few entities to split.
    """
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

    A model that always had a document may store facts that it cannot express without one. So the copy learns the form,
    on trained facts of a quarter of the entities, each equally often, in the training wordings; evaluate it on the
    other entities, as `knowledge(..., reading="elicited")` does. Updates are those of `closed-book`.

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
    data = TrainingData(source=TaughtFacts(world, tokenizer), vocabulary=Vocabulary.from_tokenizer(tokenizer))
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


@final
class TaughtFacts:
    """Trained facts of the quarter of entities used for elicitation, as `ExampleRows`.

    Each fact occurs in every training wording, with its object as the target span.
    """

    def __init__(self, world: FactWorld, tokenizer: Any) -> None:
        entities, number = elicitation_entities(world), tokenizer.get_vocab()
        facts = [fact for fact in world.of_kind("trained", "changed") if fact.entity in entities]
        vocabulary = Vocabulary.from_tokenizer(tokenizer)
        self._rows, self._spans = list[np.ndarray](), list[tuple[int, int]]()
        for question in world.questions(facts, "train"):
            places = [place for place, role in enumerate(question.roles, start=1) if role == "object"]
            words = [number[word] for word in question.words]
            self._rows.append(np.array([vocabulary.start, *words, vocabulary.end], dtype=np.int64))
            self._spans.append((places[0], places[-1] + 1))
        self.sentence_ids: np.ndarray = np.arange(len(self._rows), dtype=np.int64)
        self.lengths: np.ndarray = np.array([len(row) for row in self._rows], dtype=np.int64)
        self.digest = digest([row.tolist() for row in self._rows])

    def row(self, index: int) -> np.ndarray:
        """Token ids of one question with its answer, special tokens included."""
        return self._rows[index]

    def example(self, index: int) -> Example:
        """The question with its metadata; no passage."""
        labels = {
            "spans": np.array([self._spans[index]], dtype=np.int64),
            "gold": np.array(NULL),
            "excluded": np.empty(0, dtype=np.int64),
        }
        return Example(texts=(self._rows[index],), labels=labels)
