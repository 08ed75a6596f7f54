"""Random numbers for a loss that draws: of each example its own, whatever batch it is in."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from infoflow.foundation import UserError, stream


@dataclass(frozen=True, slots=True)
class Noise:
    """One random stream for each example of a batch.

    A stream follows from its example's key alone: (seed, epoch, example) in training, (seed, example) in evaluation.
    So neither the size and order of batches nor the number of processes changes what a loss draws, a resumed run draws
    what it would have drawn, and at every point of a path through the weights the draws are the same.
    """

    keys: tuple[tuple[int | str, ...], ...] = ()  # of the examples, in the batch's order

    def streams(self, purpose: str) -> list[np.random.Generator]:
        """A fresh generator per example; another purpose, other numbers."""
        return [stream("loss", purpose, *key) for key in self.keys]

    def uniform(
        self, purpose: str, chosen: Bool[Tensor, "example *position"], *shape: int
    ) -> Float[Tensor, "draw *shape"]:
        """Numbers of [0, 1), `shape` of them for each True of `chosen`, in the order of `states[chosen]`.

        Raises:
            UserError: The batch was made without keys.
        """
        if len(self.keys) != len(chosen):
            raise UserError(
                f"A loss that draws random numbers needs a key for each of {len(chosen)} examples. Got "
                f"{len(self.keys)}: make its batches with TrainingData.batch."
            )
        counts = chosen.flatten(1).sum(dim=1).tolist()
        drawn = [one.random((count, *shape)) for one, count in zip(self.streams(purpose), counts, strict=True)]
        return torch.from_numpy(np.concatenate(drawn).astype(np.float32)).to(chosen.device)
