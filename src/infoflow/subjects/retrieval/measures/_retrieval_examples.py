"""Example questions: the retrieved passages, the answer of each layer, and free-form answers."""

# Q question, C candidate, L state, O choice

from collections.abc import Collection, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F

from infoflow.corpus import Fact, FactWorld
from infoflow.foundation import UserError, hash64

from ..models import (
    NULL,
    Library,
    RetrievalModel,
    SearchLimits,
    document_posterior,
    rag_sequence_answer,
    rag_token_answer,
    reader_with_passages,
)
from ._answers import (
    QuestionCandidates,
    choice_log_probabilities_at_masks,
    choice_token_log_probabilities,
    inputs_with_candidates,
    limit_of,
    question_candidates,
)
from ._fact_lens import states_at
from ._inputs import FactInputs, fact_inputs
from ._tables import RETRIEVAL_EXAMPLES

_LONGEST = 4  # maximum tokens of an answer; objects have at most two


@torch.no_grad()
def decoded_answers(
    model: RetrievalModel,
    world: FactWorld,
    tokenizer: Any,
    facts: Collection[Fact],
    found: QuestionCandidates,
    *,
    edited: bool = False,
    level: Literal["sequence", "token"] = "sequence",
    decoding: Literal["thorough", "fast"] = "thorough",
    beams: int = 4,
) -> np.ndarray:
    """Whether a beam search over all words, not only the relation's objects, finds the right answer, (question,).

    `found` is the result of `question_candidates` for the same facts; `level` chooses `rag_sequence_answer` (with its
    `decoding`) or `rag_token_answer`.
    """
    reader: Any = model.reader
    if not model.writes:
        raise UserError(
            f"Decoding needs a reader that generates answers. Got a {type(reader).__name__}, which fills in masks.\n"
            "Use own_log_probabilities, or train the variant rag-sequence or rag-token."
        )
    limits = SearchLimits(int(reader.config.decoder_start_token_id), int(reader.config.eos_token_id), beams, _LONGEST)
    pad = int(reader.config.pad_token_id or 0)
    read = list(inputs_with_candidates(model, world, tokenizer, facts, found, edited))
    right = np.zeros(len(read[0]), dtype=bool)
    for question, wanted in enumerate(read[0].candidates[np.arange(len(right)), read[0].answers]):
        there = np.flatnonzero(found.there[question])
        rows = [read[column].take(np.array([question])).tensors(reader.device) for column in there]
        width = max(row["input_ids"].shape[1] for row in rows)
        pads = {name: pad if name == "input_ids" else 0 for name in rows[0]}
        named = {
            name: torch.cat([F.pad(row[name], (0, width - row[name].shape[1]), value=value) for row in rows])
            for name, value in pads.items()
        }
        next_tokens = reader_with_passages(reader, **named)
        prior = torch.from_numpy(found.log_prior[question, there]).exp()
        if level == "token":
            answer = rag_token_answer(next_tokens, prior.to(reader.device), limits)
        else:
            answer = rag_sequence_answer(next_tokens, prior.to(reader.device), limits, decoding)
        right[question] = answer.tokens == tuple(wanted[wanted >= 0].tolist())
    return right


# Example questions: the retrieved passages, their probabilities, and the answer of each layer.

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

    A state's answer is read by the logit lens: the reader's own head, applied to the states at the masks, over the
    objects of the relation, \(p_l(o) \propto \prod_j p_l(o_j)\). The posterior is conditioned on the right object, with
    passages marginalised over the whole answer. A question's rows are in the order of the prior, including the empty
    passage.

    Args:
        model: A retrieval model in evaluation mode.
        world: World of the facts.
        tokenizer: The world's tokenizer.
        kinds: Kinds of facts.
        facts: Number of facts per kind, in the first test wording; chosen without reference to any answer.
        k: Number of passages to retrieve, for sources that search.
        best: Number of objects to report for each state.
        edited: Whether to use the passages of the edited index.
        seed: Seeds the choice of facts, and a random source.
        library: Library whose index is used instead of building one; see `question_candidates`.

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
    """Every question with one of its candidates: the inputs, each state's log-probability of each choice (state,
    question, choice), and the top state's log-probability of the right object's tokens (question, target).
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
    relation = inputs.facts[row].relation
    rows = []
    for layer, logs in enumerate(logs_LQO[:, row]):
        known = np.flatnonzero(np.isfinite(logs))
        for index, choice in enumerate(known[np.argsort(-logs[known], kind="stable")][:best]):
            said = " ".join(world.words.object_words(relation, int(choice)))
            rows.append({"layer": layer, "place": index, "object": said, "probability": float(np.exp(logs[choice]))})
    return rows
