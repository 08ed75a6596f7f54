"""What a model would fill into blanks if it stopped at each layer."""

# R view (a lens and a layer), N blank, C candidate

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.corpus import length_batches
from infoflow.foundation import UserError
from infoflow.models import Model, pad_rows
from infoflow.representations import TunedLens, logit_lens

from ._blanks import Blank
from ._object_tokens import Standing


class LensLayer(NamedTuple):
    """A layer and the lens through which it is read."""

    lens: str
    layer: int


class BlankReader:
    """Log-probabilities of candidate tokens at blanks, normalised over the candidates, for every lens and layer."""

    def __init__(
        self,
        model: Model,
        candidates: Mapping[Standing, Sequence[int]],
        lenses: Mapping[str, TunedLens | None],
        tokens_per_batch: int,
    ) -> None:
        """`candidates` are the tokens of the same words in every position where they may occur."""
        self._model, self._lenses, self._tokens_per_batch = model, lenses, tokens_per_batch
        self._candidates = {stands: torch.tensor(tokens, device=model.device) for stands, tokens in candidates.items()}
        states = len(model.anatomy.predicts.layers) + 1
        self.views = [LensLayer(lens, layer) for lens in lenses for layer in range(states)]

    def takes(self, stands: Standing) -> bool:
        """Whether every candidate is a single token in this position."""
        return stands in self._candidates

    def log_shares(self, blanks: Sequence[Blank]) -> Float[Tensor, "view blank candidate"]:
        """Log-probabilities, on the CPU.

        Raises:
            UserError: The model's output is not finite.
        """
        result = torch.empty(len(self.views), len(blanks), len(self._candidates["space"]))
        for index in self._batches(blanks):
            batch = [blanks[i] for i in index]
            result[:, torch.from_numpy(index)] = torch.stack(list(self._read(batch)))
        if not bool(torch.isfinite(result).all()):
            raise UserError(f"{self._model.name} computes NaN or infinite logits. Check its weights and precision.")
        return result

    def _read(self, batch: Sequence[Blank]) -> Iterator[Float[Tensor, "blank candidate"]]:
        model = self._model
        ids, mask = pad_rows([blank.source for blank in batch], model.pad_token_id)
        written = [blank.decoder for blank in batch if blank.decoder is not None]
        decoder_ids = pad_rows(written, model.pad_token_id)[0] if written else None
        predicting = ids if decoder_ids is None else decoder_ids
        positions = torch.zeros(predicting.shape, dtype=torch.bool)
        positions[torch.arange(len(batch)), torch.tensor([blank.place for blank in batch])] = True
        asked = torch.stack([self._candidates[blank.stands] for blank in batch])
        for lens in self._lenses.values():
            for reading in logit_lens(model, ids, mask, decoder_ids, positions=positions, lens=lens):
                yield reading.logits.gather(1, asked).float().log_softmax(dim=-1).cpu()

    def _batches(self, blanks: Sequence[Blank]) -> Iterator[np.ndarray]:
        lengths = np.array([max(len(blank.source), len(blank.decoder or ())) for blank in blanks])
        if self._model.pads:
            yield from length_batches(lengths, self._tokens_per_batch)
            return
        shapes = np.array([(len(blank.source), len(blank.decoder or ())) for blank in blanks])
        for shape in np.unique(shapes, axis=0):
            alike = np.flatnonzero((shapes == shape).all(axis=1))
            for part in length_batches(lengths[alike], self._tokens_per_batch):
                yield alike[part]
