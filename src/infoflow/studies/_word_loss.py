"""The pretraining loss per word of a text: it compares models with different vocabularies."""

from typing import Any

import numpy as np
import torch

from infoflow.corpus import Corpus
from infoflow.foundation import NUM_BLOCKS, block_of, replicate_weights
from infoflow.models import Model
from infoflow.objectives import AbstractObjective
from infoflow.results import estimate
from infoflow.training import TrainingData

from ._scores import content_ids_of, rows_by_block, unigram_losses


def loss_per_word(
    model: Model, objective: AbstractObjective, data: TrainingData, corpus: Corpus, training: TrainingData
) -> dict[str, Any]:
    r"""The columns of one row of DOMAIN_LOSS: nats per word of `corpus`, beside those of frequencies alone.

    $$ \frac{\sum_i \ell_i}{\#\text{predicted}} \cdot \frac{\#\text{tokens}}{\#\text{words}} $$

    The first factor is the loss per predicted token (of several terms the weighted sum), with noise that is frozen for
    each sentence; a masked LM predicts a share of the tokens, so it stands for all. Tokens are those of what is
    predicted (of a translation those of the translation), special ones left out; words stand between white space. One
    vocabulary's longer tokens are rarer in a word and harder each: per word the two cancel.

    Args:
        model: With all that its loss needs.
        objective: What it was pretrained for.
        data: The text as the objective reads it, in the model's tokens.
        corpus: The text.
        training: What the model was trained on: its frequencies are the baseline.
    """
    objective = objective.for_evaluation()
    blocks = block_of(content_ids_of(data.source, corpus))
    unigram, terms = unigram_losses(objective, training), list(objective.term_weights)
    sums, guesses, counts = (np.zeros((len(terms), NUM_BLOCKS)) for _ in range(3))
    with torch.inference_mode():
        for rows in rows_by_block(blocks, data.source.lengths):
            batch = data.batch(objective, rows, ("evaluation-noise", 0), 0).to(model.device)
            losses, guessed = objective.loss(model.module, batch, batch.noise), objective.guesses(batch, unigram)
            for index, term in enumerate(terms):
                sums[index, blocks[rows[0]]] += float(losses[term].total)
                guesses[index, blocks[rows[0]]] += guessed[term]
                counts[index, blocks[rows[0]]] += losses[term].count
    tokens, words = _lengths(objective, data, corpus)
    weights = np.concatenate([np.ones((1, NUM_BLOCKS)), replicate_weights()])
    scale = (weights @ tokens) / (weights @ words)
    found, base = (_weighted(objective, weights, part, counts) * scale for part in (sums, guesses))
    return estimate(float(found[0]), found[1:], float(base[0]), int(words.sum()))


def _weighted(objective: AbstractObjective, weights: np.ndarray, sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The minimised loss of each draw of blocks; `sums` and `counts` are (term, block)."""
    return np.sum(
        [
            objective.term_weights[term] * (weights @ sums[index]) / (weights @ counts[index])
            for index, term in enumerate(objective.term_weights)
        ],
        axis=0,
    )


def _lengths(objective: AbstractObjective, data: TrainingData, corpus: Corpus) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and words of what is predicted, per block."""
    side = "translation" if objective.needs_translation else "text"
    vocabulary = (data.target_vocabulary if objective.needs_translation else None) or data.vocabulary
    rows = data.target if objective.needs_translation else data.source
    assert rows is not None
    of_rows, of_texts = block_of(content_ids_of(data.source, corpus)), block_of(corpus.content_ids)
    tokens, words = np.zeros(NUM_BLOCKS), np.zeros(NUM_BLOCKS)
    np.add.at(tokens, of_rows, [int((~vocabulary.is_special[rows.row(row)]).sum()) for row in range(len(of_rows))])
    np.add.at(words, of_texts, [len(text.split()) for text in corpus.column(side)])
    return tokens, words
