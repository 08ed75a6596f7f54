"""What a model that knows frequencies alone would lose: the baseline of everything that context gives."""

# V token of the vocabulary, B sentence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.flow import NO_LABEL, Reader

from ._scored import ScoredBatch


def unigram_losses(reader: Reader) -> Float[Tensor, " vocabulary"]:
    r"""$-\log p$ of each token that the model may be asked for, from its frequency, in nats (float64).

    $$ p(w) = \frac{n_w + 1}{\sum_v (n_v + 1)} $$

    Counted in the text that the model was trained on where the caller knows it, else in the corpus that is measured
    (`Reader.counted`). A causal LM and a decoder are asked for the end of a sentence too, never for what begins every
    sentence; a masked LM is asked for no special token.
    """
    stack = reader.model.anatomy.predicts.name
    rows = reader.counted_rows(stack)
    tokens, special = np.asarray(rows.flat_ids), np.asarray(rows.flat_special)
    if reader.model.task == "masked-lm":
        asked = ~special
    else:
        begins = np.asarray(rows.offsets)[:-1][rows.lengths > 0]
        asked = np.ones(len(tokens), dtype=bool)
        asked[begins] = ~special[begins]
    size = max(len(reader.tokenizer(stack)), int(tokens.max(initial=-1)) + 1)
    counts = np.bincount(tokens[asked], minlength=size).astype(np.float64)
    return torch.from_numpy(np.log(counts.sum() + size) - np.log(counts + 1))


def sentence_sums(losses_V: Float[Tensor, " vocabulary"], batch: ScoredBatch) -> Float[Tensor, " sentence"]:
    """Each sentence's sum of `losses_V` over the tokens that it asks for."""
    labels = batch.labels.cpu()
    scored = labels != NO_LABEL
    return torch.where(scored, losses_V[labels.clamp(min=0)], 0.0).sum(dim=1)
