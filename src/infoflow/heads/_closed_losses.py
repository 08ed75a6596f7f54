"""Losses of a model with the self-attention of some blocks closed, the blocks below run once.

Operations of a kind with L blocks in an encoder of L and a decoder of D blocks, in runs of one block: upper k and block
b alone are 2L − 1 different sets. From the lowest closed block up they take L(L + 1) − 1 + (2L − 1) D runs in the
encoder, and D(D + 1) − 1 in the decoder. Six and six: 107 and 41, where whole passes take 132 each. In a language model
of six blocks 41 instead of 66.
"""

# V variant, B sentence

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.flow import PassOptions
from infoflow.models import FastLinear, recorded_blocks, skipped_blocks, tap

from ._ablation_scores import VariantScores, summed_losses
from ._closed_attention import ClosedEdit
from ._head_sets import BlockSet
from ._scored import ScoredBatch, SentenceScorer
from ._unigram import sentence_sums, unigram_losses
from ._variant_losses import by_first_block

_TOGETHER = 2  # upper blocks and one block alone begin at the same block


def closed_scores(
    scorer: SentenceScorer, rows: np.ndarray, closings: Sequence[BlockSet], options: PassOptions | None = None
) -> VariantScores:
    """Losses of the sentences `rows`, in nats per predicted token: of the model as it is, with each set of blocks
    closed, and of unigram frequencies (`unigram_losses`)."""
    frequencies_V = unigram_losses(scorer.reader)

    def losses(batch: ScoredBatch) -> tuple[Tensor, Tensor]:
        open_B, closed_VB = closed_losses(scorer, batch, closings)
        return open_B, torch.cat([closed_VB, sentence_sums(frequencies_V, batch)[None]])

    return summed_losses(
        scorer,
        rows,
        2 + len(closings),
        losses,
        budget=max(1, (options or PassOptions()).tokens_per_batch // _TOGETHER),
        label=f"Closing attention of {scorer.model.name}",
    )


def closed_losses(
    scorer: SentenceScorer, batch: ScoredBatch, closings: Sequence[BlockSet]
) -> tuple[Float[Tensor, " sentence"], Float[Tensor, "variant sentence"]]:
    """Summed loss of each sentence: of the model as it is, and with each set of blocks closed; float64 on the CPU."""
    model = scorer.model
    with torch.no_grad(), FastLinear():
        # Open attention by the same code as closed one, so that nothing but what is closed tells them apart.
        with recorded_blocks(model) as recorded, tap(model, on_attention=lambda call: None):
            open_B = scorer.losses(batch).double().cpu()
        losses_VB = open_B.repeat(len(closings), 1)
        for (stack, layer), members in by_first_block(model, closings).items():
            for start in range(0, len(members), _TOGETHER):
                part = members[start : start + _TOGETHER]
                with (
                    skipped_blocks(model, recorded, stack, layer, len(part), keep_heads=False),
                    tap(model, on_attention=ClosedEdit([closings[index] for index in part])),
                ):
                    losses = scorer.losses(batch.repeated(len(part)))
                losses_VB[part] = losses.double().cpu().view(len(part), -1)
    return open_B, losses_VB
