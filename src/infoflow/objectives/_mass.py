"""MASS: a fragment of the text is hidden from the encoder, and the decoder writes it."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from transformers import PreTrainedModel

from infoflow.architectures import Layout
from infoflow.corpus import Vocabulary
from infoflow.foundation import Probability

from ._batch import SENTENCE_FIELDS, UNSUPERVISED, Batch, Corrupted, Field
from ._encoder_decoder import target_loss
from ._example import Example
from ._loss import LossTerm
from ._masking import hide, mask_id
from ._noise import Noise
from ._objective import AbstractObjective, Family


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Mass(AbstractObjective):
    """Half of the text is a fragment that the encoder sees as [MASK] (80 %), random tokens (10 %), or itself (10 %).

    The decoder reads the token before each of the fragment's, at its position in the text, and does not attend to
    [MASK]. The fragment is at the beginning or the end with probability .2 each, else anywhere. Source:
    [@song2019mass]; its code derives the fragment's length from the longest sentence of a batch, here each sentence has
    its own.
    """

    name: ClassVar[str] = "mass"
    layout: ClassVar[Layout] = "encoder-decoder"
    family: ClassVar[Family] = "reconstruct"
    term_weights: ClassVar[dict[str, float]] = {"mass": 1.0}
    fields: ClassVar[dict[str, Field]] = {
        **SENTENCE_FIELDS,
        "decoder_position_ids": Field(),
        "visible": Field(),
    }

    share: Probability = 0.5  # share of the text in the fragment
    mask_share: Probability = 0.8  # of the fragment's tokens
    random_share: Probability = 0.1

    @property
    def predicted_share(self) -> float:
        return self.share

    @property
    def needs_mask(self) -> bool:
        return True

    def corrupt(self, example: Example, generator: np.random.Generator, vocabulary: Vocabulary) -> Corrupted:
        """Hide a fragment; the first special token is never part of it."""
        tokens, mask = example.text, mask_id(vocabulary, self.name)
        first, stop = fragment(len(tokens) - 2, self.share, generator)
        positions = np.arange(first, stop)
        shown = hide(
            tokens,
            positions,
            generator,
            vocabulary,
            self.name,
            mask_share=self.mask_share,
            random_share=self.random_share,
        )
        selected = np.zeros(len(tokens), dtype=bool)
        selected[positions] = True
        # A text without tokens has no fragment: the decoder reads its [CLS], without a target.
        read = positions - 1 if len(positions) else np.zeros(1, dtype=np.int64)
        arrays = {
            "input_ids": shown,
            "labels": tokens[positions] if len(positions) else np.full(1, UNSUPERVISED),
            "decoder_input_ids": tokens[read],
            "decoder_position_ids": read,
            "visible": (shown != mask).astype(np.int64),
        }
        return Corrupted(arrays=arrays, selected=selected)

    def loss(
        self, module: PreTrainedModel, batch: Batch, noise: Noise, label_smoothing: float = 0.0
    ) -> dict[str, LossTerm]:
        """Cross-entropy of the fragment's tokens."""
        return target_loss(
            self.name,
            module,
            batch,
            label_smoothing,
            position_ids=batch["decoder_position_ids"],
            encoder_attention_mask=batch["visible"],  # 0 at padding too
        )


def fragment(length: int, share: float, generator: np.random.Generator) -> tuple[int, int]:
    """First position and end of the fragment of a text of `length` tokens, which begins at position 1."""
    size = min(max(round(length * share), 1), length)
    where = generator.random()
    if where < 0.2:
        start = 0
    elif where < 0.4:
        start = length - size
    else:
        start = int(generator.integers(length - size + 1))
    return 1 + start, 1 + start + size
