"""Facts as one model reads them with each document: its inputs and its answers."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, final

import numpy as np

from infoflow.corpus import Fact, FactWorld
from infoflow.foundation import UserError

from ..models import Library, RetrievalModel
from ._answers import answer_log_probabilities
from ._candidates import QuestionCandidates, limit_of, own_log_probabilities, question_candidates
from ._inputs import DOCUMENTS, FactInputs, fact_inputs

OWN = "own"
"""The document of a model that reads everything it retrieved, marginalised over passages."""
Level = Literal["sequence", "token"]


def reader_of(model: Any) -> Any:
    """The masked LM of a `RetrievalModel`, or the model itself."""
    return model.reader if isinstance(model, RetrievalModel) else model


@final
@dataclass(slots=True, kw_only=True)
class FactReadings:
    """A model, and the facts to test."""

    model: Any  # a masked LM, or a `RetrievalModel`
    world: FactWorld
    tokenizer: Any
    facts: Collection[Fact]
    edited: bool = False  # whether to use the passages of the edited index
    k: int = 2  # passages per search
    level: Level = "sequence"  # level of the marginalisation
    seed: int = 0  # seeds random documents
    passage_library: Library | None = None  # see `question_candidates`; None: it is built for these facts
    _found: QuestionCandidates | None = field(default=None, init=False)

    @property
    def reader(self) -> Any:
        """The masked LM."""
        return reader_of(self.model)

    @property
    def available(self) -> tuple[str, ...]:
        """The documents that this model has, `own` included; a model without a source of passages has no `own`."""
        if not isinstance(self.model, RetrievalModel):
            return DOCUMENTS[:-1]
        return (*DOCUMENTS[:-1], OWN) if self.model.source == "none" else (*DOCUMENTS, OWN)

    def require(self, documents: Collection[str]) -> None:
        """Raise a `UserError` if one of these is not available."""
        if wrong := [one for one in documents if one not in self.available]:
            raise UserError(
                f"documents must be among {', '.join(self.available)} for a {type(self.model).__name__}. Got "
                f'"{wrong[0]}".\nFor retrieved and own use a RetrievalModel that retrieves passages.'
            )

    def has(self, document: str) -> bool:
        """Whether one of the facts has a document of this kind."""
        if document not in ("gold", "conflict"):
            return True
        return any(self.world.gold(fact, self.edited) >= 0 for fact in self.facts)

    def inputs(self, document: str) -> FactInputs:
        """The questions with a document; for `own` without one."""
        passages = self.found.best().tolist() if document == "retrieved" else None
        kind: Any = "none" if document == OWN else document
        options = {"edited": self.edited, "limit": limit_of(self.reader), "seed": self.seed}
        return fact_inputs(self.world, self.tokenizer, self.facts, kind, passages=passages, **options)

    def answers(self, document: str, inputs: FactInputs) -> np.ndarray:
        """Log-probabilities of objects, (question, choice)."""
        if document != OWN:
            return answer_log_probabilities(self.reader, inputs)
        options: Any = {"edited": self.edited, "level": self.level}
        return own_log_probabilities(self.model, self.world, self.tokenizer, self.facts, self.found, **options)

    def read(self, documents: Collection[str]) -> Iterator[tuple[str, FactInputs, np.ndarray]]:
        """Each document that a fact has, with its inputs and answers."""
        self.require(documents)
        for document in documents:
            if self.has(document):
                inputs = self.inputs(document)
                yield document, inputs, self.answers(document, inputs)

    @property
    def found(self) -> QuestionCandidates:
        """What the model retrieves: from the library given, else from an index built now."""
        if self._found is None:
            options: Any = {"edited": self.edited, "k": self.k, "seed": self.seed, "library": self.passage_library}
            self._found = question_candidates(self.model, self.world, self.tokenizer, self.facts, **options)
        return self._found
