"""Example questions: the retrieved passages, their probabilities, and the answer of each layer."""

# Q question, C candidate, L state, O choice

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from infoflow.corpus import Fact, FactWorld
from infoflow.foundation import UserError, hash64

from ..models import NULL, Library, RetrievalModel, document_posterior
from ._answers import choice_log_probabilities_at_masks, choice_token_log_probabilities
from ._candidates import QuestionCandidates, limit_of, question_candidates
from ._fact_states import states_at
from ._inputs import FactInputs, fact_inputs
from ._tables import RETRIEVAL_EXAMPLES

KINDS = ("trained", "changed", "held out")


@torch.no_grad()
def retrieval_examples(
    model: RetrievalModel,
    world: FactWorld,
    tokenizer: Any,
    *,
    kinds: Sequence[str] = KINDS,
    facts: int = 3,
    k: int = 3,
    best: int = 3,
    edited: bool = False,
    seed: int = 0,
    library: Library | None = None,
) -> pd.DataFrame:
    r"""The candidates of a few questions, each with its prior π, its posterior ρ, and every state's answer with it.

    A state's answer is the logit lens: the reader's own head on the states at the masks, over the objects of the
    relation, \(p_l(o) \propto \prod_j p_l(o_j)\). The posterior is that of the right object, with passages marginalised
    over the whole answer. A question's rows are in the order of the prior, the empty passage included.

    Args:
        model: In evaluation mode.
        world: World of the facts.
        tokenizer: The world's tokenizer.
        kinds: Kinds of facts.
        facts: Number per kind, in the first test wording; chosen without reference to any answer.
        k: Passages to search for, for sources that search.
        best: Objects to report for each state.
        edited: Whether to use the passages of the edited index.
        seed: Seeds the choice of facts, and a random source.
        library: Its index replaces one built here; see `question_candidates`.

    Raises:
        UserError: A number is below 1, or no fact is left.
    """
    for name, value in (("facts", facts), ("k", k), ("best", best)):
        if value < 1:
            raise UserError(f"{name} must be at least 1. Got {value}.")
    chosen = [fact for kind in kinds for fact in _some(world.of_kind(kind), facts, seed)]
    if not chosen:
        raise UserError(
            f"There must be facts to ask about. The world has none of the kinds {', '.join(kinds) or '(none)'}."
        )
    options: Any = {"edited": edited, "k": k, "seed": seed, "library": library}
    found = question_candidates(model, world, tokenizer, chosen, **options)
    read = [_read(model, world, tokenizer, chosen, found, column, edited) for column in range(found.ids.shape[1])]
    logs_QCJ = np.stack([tokens for _, _, tokens in read], axis=1)
    posterior_QC = document_posterior(found.log_prior, logs_QCJ, candidates=found.there).numpy()
    questions = world.questions(chosen)
    first = {question.fact: row for row, question in reversed(list(enumerate(questions)))}
    passages = world.passages(edited)
    rows = []
    for fact in chosen:
        row = first[fact.number]
        about = {
            "question": questions[row].masked(),
            "facts": fact.kind,
            "weight": int(fact.weight),
            "answer": " ".join(world.words.object_words(fact.relation, _true(fact, edited))),
        }
        there = np.flatnonzero(found.there[row])
        order = there[np.argsort(-found.log_prior[row, there], kind="stable")]
        for rank, column in enumerate(order):
            id = int(found.ids[row, column])
            inputs, logs_LQO, _ = read[column]
            known = {
                **about,
                "rank": rank,
                "passage": "" if id == NULL else str(passages[id]["text"]),
                "gold": id != NULL and id == world.gold(fact, edited),
                "prior": float(np.exp(found.log_prior[row, column])),
                "posterior": float(posterior_QC[row, column]),
            }
            rows += [{**known, **said} for said in _said(world, inputs, logs_LQO, row, best)]
    return RETRIEVAL_EXAMPLES.conform(pd.DataFrame(rows))


def _some(facts: Sequence[Fact], num: int, seed: int) -> list[Fact]:
    """A sample of facts, the same for every model."""
    return sorted(facts, key=lambda fact: hash64("retrieval-example", seed, fact.number))[:num]


def _true(fact: Fact, edited: bool) -> int:
    return fact.edited if edited else fact.object


def _read(
    model: RetrievalModel,
    world: FactWorld,
    tokenizer: Any,
    facts: Sequence[Fact],
    found: QuestionCandidates,
    column: int,
    edited: bool,
) -> tuple[FactInputs, np.ndarray, np.ndarray]:
    """Every question with one of its candidates.

    Returns the inputs, each state's log-probability of each choice (state, question, choice), and that of the right
    object's tokens at the top (question, target).
    """
    passages = np.where(found.there[:, column], found.ids[:, column], NULL).tolist()
    inputs = fact_inputs(world, tokenizer, facts, "retrieved", passages=passages, edited=edited, limit=limit_of(model))
    head = model.reader.cls
    states = states_at(model.reader, inputs, inputs.masks)
    logs = [choice_log_probabilities_at_masks(head(state.to(model.device)).cpu(), inputs) for state in states]
    right = np.array([_true(fact, edited) for fact in inputs.facts])
    tokens = choice_token_log_probabilities(model.reader, inputs)[np.arange(len(inputs)), right]
    return inputs, np.stack(logs), tokens


def _said(world: FactWorld, inputs: FactInputs, logs_LQO: np.ndarray, row: int, best: int) -> list[dict[str, Any]]:
    """The most likely objects of each state."""
    relation = inputs.facts[row].relation
    rows = []
    for layer, logs in enumerate(logs_LQO[:, row]):
        known = np.flatnonzero(np.isfinite(logs))
        for place, choice in enumerate(known[np.argsort(-logs[known], kind="stable")][:best]):
            said = " ".join(world.words.object_words(relation, int(choice)))
            rows.append({"layer": layer, "place": place, "object": said, "probability": float(np.exp(logs[choice]))})
    return rows
