"""Whether a retrieval model has learned to answer its training queries."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from infoflow.foundation import NUM_BLOCKS, block_of, hash64
from infoflow.objectives import UNSUPERVISED, Batch
from infoflow.training import TokenRows, TrainingData

from ..models import NULL, RetrievalModel
from ..objectives._retrieval_lm import RetrievalLM

_ASKED, _BATCH = 512, 64
_MARGIN = 0.05  # required margin over a guess


class TrainingAccuracy(NamedTuple):
    """P@1 on training queries, by blocks of queries, with the accuracy of a guess among the relation's objects."""

    right: np.ndarray  # float64 (block,)
    asked: np.ndarray  # float64 (block,)
    chance: float

    @property
    def value(self) -> float:
        return float(self.right.sum() / self.asked.sum())

    @property
    def learned(self) -> bool:
        """Whether it beats a guess: otherwise it knows at most which kind of object is expected."""
        return self.value > self.chance + _MARGIN


@torch.no_grad()
def training_accuracy(
    model: RetrievalModel, objective: RetrievalLM, data: TrainingData, chance: float
) -> TrainingAccuracy:
    r"""Accuracy of the most probable word of \(\sum_z \pi(z) p(y|z, x)\), on 512 queries with a single mask.

    If no query has a single mask (all answers have several tokens): how often every mask of a query is correct.

    Args:
        model: A model in evaluation mode.
        objective: Its training objective; queries are always masked at their objects.
        data: Its training queries.
        chance: Accuracy of a guess among objects.
    """
    asking = replace(objective.for_evaluation(), masking="salient")
    source = data.source
    looked = spread(len(source.lengths), 8 * _ASKED).tolist()
    masks = {row: _num_masks(source.example(row).labels) for row in looked}  # type: ignore[union-attr]
    rows = [row for row in looked if masks[row] == 1] or [row for row in looked if masks[row] > 1]
    chosen = np.array(rows)[spread(len(rows), _ASKED)]
    right = np.zeros(len(chosen))
    for start in range(0, len(chosen), _BATCH):
        batch = data.batch(asking, chosen[start : start + _BATCH], ("training-accuracy",), 0)
        right[start : start + len(batch)] = _right(model, asking, batch.to(model.device))
    blocks = text_blocks(source, chosen)
    return TrainingAccuracy(
        right=np.bincount(blocks, right, NUM_BLOCKS),
        asked=np.bincount(blocks, minlength=NUM_BLOCKS).astype(np.float64),
        chance=chance,
    )


def text_blocks(source: TokenRows, rows: np.ndarray) -> np.ndarray:
    """The bootstrap block of each of these rows: that of the first row with the same tokens."""
    texts = np.array([hash64("row", *source.row(row).tolist()) for row in rows.tolist()], dtype=np.uint64)
    _, first, place = np.unique(texts, return_index=True, return_inverse=True)
    return block_of(source.sentence_ids[rows[first]])[place]


def spread(num: int, most: int) -> np.ndarray:
    """At most `most` of `num` rows, evenly spaced."""
    return np.linspace(0, num - 1, min(most, num)).astype(int)


def _num_masks(labels: dict[str, np.ndarray]) -> int:
    """Tokens of the object that a passage answers; 0: no passage does, or the query masks several objects."""
    spans = labels["spans"]
    return int(spans[0, 1] - spans[0, 0]) if int(labels["gold"]) != NULL and len(spans) == 1 else 0


def _right(model: RetrievalModel, objective: RetrievalLM, batch: Batch) -> np.ndarray:
    """Whether each query is answered correctly."""
    ids, mask, labels = batch.input_ids, batch.attention_mask, batch.labels
    beside = {name: batch[name].cpu().numpy() for name in ("gold", "draw", "null_only", "excluded")}
    excluded = [[id for id in row if id >= 0] for row in beside["excluded"].tolist()]
    choice = model.choose(ids, mask, objective.k, beside["gold"], beside["draw"], excluded, beside["null_only"])
    there = torch.from_numpy(choice.there).to(ids.device)
    prior = model.logits(ids, mask, choice).masked_fill(~there, float("-inf")).softmax(dim=1)
    words = model.word_log_probabilities(ids, mask, labels, choice)  # (query, candidate, mask, word)
    right = np.ones(len(ids), dtype=bool)
    for place, target in enumerate(_targets(labels)):
        marginal = (prior[:, :, None] * words[:, :, place].exp()).sum(dim=1)
        right &= ((marginal.argmax(dim=-1) == target) | (target == UNSUPERVISED)).cpu().numpy()
    return right.astype(np.float64)


def _targets(labels: Tensor) -> list[Tensor]:
    """The word at the first mask of each query, at the second, ...; −100 if a query has no such mask."""
    asked = labels != UNSUPERVISED
    rank = asked.cumsum(dim=1)
    places = range(1, int(rank.max()) + 1)
    return [torch.where(asked & (rank == place), labels, UNSUPERVISED).amax(dim=1) for place in places]
