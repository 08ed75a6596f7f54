"""A model's predictions, token by token: log-probabilities with the context of each predicted token."""

# B sentence, T token, N predicted token, V vocabulary

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.flow import NO_LABEL, PassOptions, Reader
from infoflow.heads import ScoredBatch, SentenceScorer

from ._ngrams import NO_TOKEN

_CHUNK = 1 << 21  # log-probabilities in float64 held at a time


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ScoredTokens:
    """Predicted tokens of one batch, sentence by sentence."""

    log_chances: Float[Tensor, "N V"]  # float32
    labels: Int[np.ndarray, " N"]
    positions: Int[np.ndarray, " N"]  # of the predicted token among its sentence's ordinary tokens, from 1
    before: Int[np.ndarray, "N back"]  # visible tokens before it, nearest first; −1: none, or not visible
    after: Int[np.ndarray, " N"]  # the visible token after it (masked LM)
    sentences: Int[np.ndarray, " N"]  # row of the sentence in the batch
    blocks: Int[np.ndarray, " N"]

    @property
    def losses(self) -> Float[np.ndarray, " N"]:
        labels = torch.from_numpy(self.labels).to(self.log_chances.device)
        return -self.log_chances.gather(1, labels[:, None])[:, 0].double().cpu().numpy()

    def chunks(self) -> Iterator[slice]:
        """Parts small enough to hold their log-probabilities in float64."""
        step = max(1, _CHUNK // self.log_chances.shape[1])
        for start in range(0, len(self.labels), step):
            yield slice(start, start + step)


def scored_tokens(
    reader: Reader, options: PassOptions, sentences: int | None, back: int, purpose: str = "over-training"
) -> Iterator[ScoredTokens]:
    """Predictions on `sentences` sentences, chosen by a hash of their text, with `back` tokens before each.

    A masked LM reads text corrupted as in its training, with the same noise at every checkpoint.
    """
    scorer = SentenceScorer(reader)
    for batch in scorer.batches(scorer.choose(sentences, purpose), options.tokens_per_batch):
        yield predicted(scorer, batch, back)


def predicted(scorer: SentenceScorer, batch: ScoredBatch, back: int) -> ScoredTokens:
    """One batch's predictions."""
    with torch.inference_mode():
        logits = scorer.logits(batch)
        logs = torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), dim=-1)
    stream = batch.padded.streams[scorer.model.anatomy.predicts.name]
    labels = batch.labels.cpu().numpy()
    inputs, valid = stream.input_ids.cpu().numpy(), stream.valid.cpu().numpy()
    rows, steps = np.nonzero(labels != NO_LABEL)
    ordinary = np.cumsum(valid, axis=1)
    if scorer.model.task == "masked-lm":
        visible = np.where((labels == NO_LABEL) & stream.real.cpu().numpy(), inputs, NO_TOKEN)
        positions, last = 1 + ordinary[rows, steps] - valid[rows, steps], steps - 1
    else:
        visible, positions, last = inputs, 1 + ordinary[rows, steps], steps
    return ScoredTokens(
        log_chances=logs,
        labels=labels[rows, steps],
        positions=positions,
        before=_at(visible, rows[:, None], last[:, None] - np.arange(back)),
        after=_at(visible, rows, steps + 1),
        sentences=rows,
        blocks=batch.padded.blocks.numpy()[rows],
    )


def _at(tokens: np.ndarray, rows: np.ndarray, steps: np.ndarray) -> np.ndarray:
    inside = (steps >= 0) & (steps < tokens.shape[1])
    return np.where(inside, tokens[rows, np.clip(steps, 0, tokens.shape[1] - 1)], NO_TOKEN)
