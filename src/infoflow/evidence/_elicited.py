"""What a model knows once it was shown how to say it without a document."""

import copy
import tempfile
from pathlib import Path
from typing import Any, final

import numpy as np
from transformers import PreTrainedModel

from infoflow.corpus import FactWorld, Vocabulary
from infoflow.foundation import UserError, digest, hash64
from infoflow.objectives import Example, make_objective, retrieval_model
from infoflow.retrieval import NULL
from infoflow.training import TrainConfig, TrainingData, train

_SHARE = 4  # one entity in so many is taught
_TOKENS = 10**6  # of an update, more than its questions have


def elicitation_entities(world: FactWorld) -> frozenset[int]:
    """The quarter of the entities with trained facts that `elicited` teaches, the same for every model.

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
    """A copy of a reader, trained for a moment to answer without a document.

    A model that always had a document may know what it was never asked for without one. So it is taught the form, on
    trained facts of a quarter of the entities, each as often as any other, in the wordings of training; ask the copy
    for facts of the others: `knowledge(..., reading="elicited")` does. Updates are those of `closed-book`.

    Args:
        reader: A BERT with the head of a masked LM; it stays as it is.
        world: Where the facts are from.
        tokenizer: The world's.
        seed: Of the order of the questions.
        updates: Optimiser steps.
        rate: Peak learning rate; warm-up and fall as in every run.
        batch: Questions of an update.

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
    with tempfile.TemporaryDirectory() as folder:
        train(objective, config, data, retrieval_model(objective, copied), Path(folder) / "elicited")
    return copied.to(reader.device).eval()


@final
class TaughtFacts:
    """Trained facts of the quarter of entities that eliciting teaches, as `ExampleRows`: each in every wording of
    training, its object the span to ask for."""

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
        """Token ids of one question with its answer, specials included."""
        return self._rows[index]

    def example(self, index: int) -> Example:
        """The question with what is known of it; no passage."""
        labels = {
            "spans": np.array([self._spans[index]], dtype=np.int64),
            "gold": np.array(NULL),
            "excluded": np.empty(0, dtype=np.int64),
        }
        return Example(texts=(self._rows[index],), labels=labels)
