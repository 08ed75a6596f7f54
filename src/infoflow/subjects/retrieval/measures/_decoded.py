"""Free-form answers of a generating reader: RAG-Sequence and RAG-Token decoding of questions about facts."""

from collections.abc import Collection
from typing import Any, Literal

import numpy as np
import torch

from infoflow.corpus import Fact, FactWorld
from infoflow.foundation import UserError

from ..models import RetrievalModel, SearchLimits, rag_sequence_answer, rag_token_answer, reader_with_passages
from ._candidates import QuestionCandidates, inputs_with_candidates

_LONGEST = 4  # tokens of an answer; objects have two at most


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
    """Whether a beam search over all words, not only the relation's objects, ends at the right answer, (question,).

    Args:
        model: In evaluation mode; its reader is an `EncoderDecoderModel`.
        world: World of the facts.
        tokenizer: The world's tokenizer.
        facts: The facts passed to `question_candidates`.
        found: Its result.
        edited: The value passed to it.
        level: Level of the marginalisation: `rag_sequence_answer` or `rag_token_answer`.
        decoding: For the former, as in `rescore_hypotheses`.
        beams: Number of beams.

    Raises:
        UserError: The reader does not generate.
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
        named = {
            name: torch.cat([_widened(row[name], width, pad if name == "input_ids" else 0) for row in rows])
            for name in rows[0]
        }
        next_tokens = reader_with_passages(reader, **named)
        prior = torch.from_numpy(found.log_prior[question, there]).exp()
        if level == "token":
            answer = rag_token_answer(next_tokens, prior.to(reader.device), limits)
        else:
            answer = rag_sequence_answer(next_tokens, prior.to(reader.device), limits, decoding)
        right[question] = answer.tokens == tuple(wanted[wanted >= 0].tolist())
    return right


def _widened(row: torch.Tensor, width: int, value: int) -> torch.Tensor:
    return torch.nn.functional.pad(row, (0, width - row.shape[1]), value=value)
