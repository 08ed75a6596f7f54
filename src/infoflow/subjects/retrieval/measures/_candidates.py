"""What a retrieval model retrieves for questions about facts, and its answers from all of it."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor

from infoflow.corpus import Fact, FactWorld
from infoflow.foundation import hash64

from ..models import NULL, Library, Passages, RetrievalModel, marginal_log_likelihood, num_positions
from ._answers import choice_token_log_probabilities
from ._inputs import FactInputs, TokenPart, fact_inputs

_BATCH = 1024
_DRAWS = 1 << 62


@final
@dataclass(frozen=True, slots=True, eq=False)
class QuestionCandidates:
    """What each question may read, in the order of `world.questions(facts)`; the last candidate is the null passage."""

    ids: np.ndarray  # int64 (question, candidate), numbers of the world's passages
    there: np.ndarray  # bool (question, candidate)
    log_prior: np.ndarray  # (question, candidate), log π; −∞ where there is none

    def best(self) -> np.ndarray:
        """The passage with the highest prior, without the null passage; −1 if nothing was found."""
        if self.ids.shape[1] == 1:
            return self.ids[:, 0]
        chosen = self.log_prior[:, :-1].argmax(axis=1)
        return np.take_along_axis(self.ids, chosen[:, None], axis=1)[:, 0]


@torch.no_grad()
def question_candidates(
    model: RetrievalModel,
    world: FactWorld,
    tokenizer: Any,
    facts: Collection[Fact],
    *,
    edited: bool = False,
    k: int = 2,
    seed: int = 0,
    library: Library | None = None,
) -> QuestionCandidates:
    """What a model retrieves for every fact, in the test wordings.

    The index is built here from the current model, so it is not stale; the model's own is unchanged. Measures with one
    model and several sets of facts share a `library`, whose index is built once.

    Args:
        model: In evaluation mode.
        world: World of the facts.
        tokenizer: The world's tokenizer.
        facts: Facts to use.
        edited: Whether to use the passages of the edited index.
        k: Number of passages, for sources that search.
        seed: Seeds a random source.
        library: Replaces the world's passages; ids must be the world's. Its index is used as it is and may be stale;
            without one, it gets the index built here, and keeps it.
    """
    asked = fact_inputs(world, tokenizer, facts, "none", limit=limit_of(model))
    passages = library or Library(Passages.from_rows(world.passages(edited)), tokenizer, limit_of(model))
    gold = np.array([world.gold(fact, edited) for fact in asked.facts])
    draws = np.array([hash64("own-candidates", seed, fact.number) % _DRAWS for fact in asked.facts])
    parts = []
    with _reading_from(model, passages):
        for start in range(0, len(asked), _BATCH):
            rows = np.arange(start, min(start + _BATCH, len(asked)))
            ids, mask = _queries(asked.take(rows), model.device)
            none = np.zeros(len(rows), dtype=bool)
            choice = model.choose(ids, mask, k, gold[rows], draws[rows], [()] * len(rows), none)
            scores = model.logits(ids, mask, choice).double().cpu()
            prior = scores.masked_fill(~torch.from_numpy(choice.there), -torch.inf).log_softmax(dim=1)
            parts.append((choice.ids, choice.there, prior.numpy()))
    return QuestionCandidates(*(np.concatenate(one) for one in zip(*parts, strict=True)))


def own_log_probabilities(
    model: RetrievalModel,
    world: FactWorld,
    tokenizer: Any,
    facts: Collection[Fact],
    found: QuestionCandidates,
    *,
    edited: bool = False,
    level: Literal["sequence", "token"] = "sequence",
) -> np.ndarray:
    r"""Each object's log-probability, marginalised over passages and renormalised over the relation's objects.

    $$ \log p(o) \propto \log \sum_z \pi(z) \prod_j p(o_j \mid z, x) $$

    at the sequence level; see `marginal_log_likelihood` for the other. (question, choice), in nats, −∞ for choices
    outside the relation.

    Args:
        model: In evaluation mode.
        world: World of the facts.
        tokenizer: The world's tokenizer.
        facts: The facts passed to `question_candidates`.
        found: Its result.
        edited: The value passed to it.
        level: Level of the marginalisation.
    """
    asked = inputs_with_candidates(model, world, tokenizer, facts, found, edited)
    logs = [choice_token_log_probabilities(model.reader, inputs) for inputs in asked]
    likely = np.stack(logs, axis=2)  # (question, choice, candidate, target)
    num_questions, num_choices, num_candidates, num_targets = likely.shape
    marginal = marginal_log_likelihood(
        np.repeat(found.log_prior, num_choices, axis=0),
        likely.reshape(-1, num_candidates, num_targets),
        level=level,
        candidates=np.repeat(found.there, num_choices, axis=0),
    )
    return marginal.reshape(num_questions, num_choices).log_softmax(dim=1).numpy()


def inputs_with_candidates(
    model: RetrievalModel,
    world: FactWorld,
    tokenizer: Any,
    facts: Collection[Fact],
    found: QuestionCandidates,
    edited: bool,
) -> Iterator[FactInputs]:
    """All questions with their first candidate, then with their second, and so on; missing candidates are skipped."""
    for ids in np.where(found.there, found.ids, NULL).T:
        options: Any = {"passages": ids.tolist(), "edited": edited, "limit": limit_of(model)}
        yield fact_inputs(world, tokenizer, facts, "retrieved", **options)


def limit_of(model: Any) -> int:
    """Number of the model's positions."""
    return num_positions(model.config)


def _queries(asked: FactInputs, device: torch.device) -> tuple[Tensor, Tensor]:
    """`[CLS] question [SEP]` without the empty passage's `[SEP]`, and the padding mask."""
    real = (asked.parts != TokenPart.PAD) & (asked.token_type_ids == 0)
    longest = int(real.sum(axis=1).max())
    arrays = asked.input_ids, real.astype(np.int64)
    ids, mask = (torch.from_numpy(array[:, :longest].copy()).to(device) for array in arrays)
    return ids, mask


@contextmanager
def _reading_from(model: RetrievalModel, library: Library) -> Iterator[None]:
    before = model.passage_library
    model.passage_library = library
    try:
        yield
    finally:
        model.passage_library = before
