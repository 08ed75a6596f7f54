"""Fixed positions: the sinusoids of the first Transformer."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel

_TABLES = ("position_embeddings", "wpe")
_LONGEST = 10_000.0


def sinusoids(positions: int, width: int) -> Float[Tensor, "position width"]:
    r"""Sinusoids of amplitude 1 [@vaswani2017].

    $P_{p,2i} = \sin(p / 10000^{2i/d})$, $P_{p,2i+1} = \cos(p / 10000^{2i/d})$
    """
    angles = torch.arange(positions)[:, None] / _LONGEST ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width].float()


def fix_positions(model: PreTrainedModel, amplitude: float) -> None:
    """Put sinusoids into every position table, without gradients.

    In the first Transformer their amplitude is 1 beside token embeddings of deviation 1 (after its factor √d).
    """
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in _TABLES and isinstance(module, nn.Embedding):
            with torch.no_grad():
                module.weight.copy_(amplitude * sinusoids(*module.weight.shape))
            module.weight.requires_grad_(False)
