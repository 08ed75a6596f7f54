"""Random numbers for a stochastic loss: one stream per example, independent of the batch."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow.foundation import UserError, stream


@dataclass(frozen=True, slots=True)
class Noise:
    """One random stream for each example of a batch.

    A stream depends only on its example's key: (seed, epoch, example) in training, (seed, example) in evaluation. So
    the draws of a loss do not depend on the size and order of batches or the number of processes, a resumed run repeats
    them, and they are the same at every point of a path through the weights.
    """

    keys: tuple[tuple[int | str, ...], ...] = ()  # of the examples, in the batch's order

    def streams(self, purpose: str) -> list[np.random.Generator]:
        """A fresh generator per example; each purpose has its own numbers."""
        return [stream("loss", purpose, *key) for key in self.keys]

    def uniform(
        self, purpose: str, chosen: Bool[Tensor, "example *position"], *shape: int
    ) -> Float[Tensor, "draw *shape"]:
        """Numbers in [0, 1), `shape` of them for each True of `chosen`, in the order of `states[chosen]`.

        Raises:
            UserError: The batch has no keys.
        """
        if len(self.keys) != len(chosen):
            raise UserError(
                f"A loss that draws random numbers needs a key for each of {len(chosen)} examples. Got "
                f"{len(self.keys)}: make its batches with TrainingData.batch."
            )
        counts = chosen.flatten(1).sum(dim=1).tolist()
        drawn = [one.random((count, *shape)) for one, count in zip(self.streams(purpose), counts, strict=True)]
        return torch.from_numpy(np.concatenate(drawn).astype(np.float32)).to(chosen.device)
