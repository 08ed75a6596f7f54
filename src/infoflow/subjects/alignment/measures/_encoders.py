"""The encoder of a model, and an encoder with a map into another encoder's space."""

import copy
import json
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from infoflow._transformers import PreTrainedModel, PreTrainedTokenizerBase
from infoflow.foundation import UserError, atomic_folder, read_object
from infoflow.models import Model, load_model, save_model

Merge = Literal["last", "mean"]

_PROJECTION, _FACTS = "projection.safetensors", "alignment.json"


def encoder_of(model: Model) -> PreTrainedModel:
    """The part of a model that reads its text, without output head or decoder."""
    stack = model.anatomy.reads
    if stack.name != "encoder":
        raise UserError(
            f"Alignment maps one encoder's space onto another's. {model.name}, a {model.task} model, has no encoder."
        )
    return model.module.get_encoder() if len(model.anatomy.stacks) > 1 else model.module.base_model


def encode(
    encoder: nn.Module, input_ids: Int[Tensor, "sentence token"], real: Bool[Tensor, "sentence token"]
) -> Float[Tensor, "sentence token width"]:
    """The encoder's last hidden states."""
    return encoder(input_ids=input_ids, attention_mask=real.long()).last_hidden_state


def frozen(encoder: PreTrainedModel) -> PreTrainedModel:
    """A copy in evaluation mode, without gradients."""
    return copy.deepcopy(encoder).eval().requires_grad_(False)


class AlignedEncoder(nn.Module):
    """f: an encoder, and a linear map from its states into the space of another encoder."""

    def __init__(self, encoder: PreTrainedModel, projection: nn.Linear, merge: Merge = "last") -> None:
        super().__init__()
        self.encoder, self.projection, self.merge = encoder, projection, merge

    def forward(
        self, input_ids: Int[Tensor, "sentence token"], real: Bool[Tensor, "sentence token"]
    ) -> Float[Tensor, "sentence token target_width"]:
        """The mapped states of each token; `real` is False at padding."""
        return self.projection(encode(self.encoder, input_ids, real))

    def save(
        self, folder: Path | str, tokenizer: PreTrainedTokenizerBase | None = None, facts: dict[str, Any] | None = None
    ) -> None:
        """Write a folder that `AutoModel` and `load_model` read as the encoder, with an additional file for the map.

        The map is in `projection.safetensors`: `weight` (target width, width) and `bias`, as in `torch.nn.Linear`.
        """
        with atomic_folder(folder) as temporary:
            text = f"An encoder, and in `{_PROJECTION}` a linear map of its states into the space of another encoder."
            save_model(self.encoder, temporary, tokenizer, card={"title": "Aligned encoder", "text": text})
            save_file(
                {k: v.detach().cpu().contiguous() for k, v in self.projection.state_dict().items()},
                temporary / _PROJECTION,
            )
            (temporary / _FACTS).write_text(
                json.dumps({**(facts or {}), "merge": self.merge}, indent=2) + "\n", encoding="utf-8"
            )

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto") -> "AlignedEncoder":
        """An encoder from `save`, in evaluation mode.

        Raises:
            UserError: There is no aligned encoder in that folder.
        """
        facts = read_facts(folder)
        encoder = encoder_of(load_model(Path(folder), device=device))
        tensors = load_file(Path(folder) / _PROJECTION)
        projection = nn.Linear(tensors["weight"].shape[1], tensors["weight"].shape[0])
        projection.load_state_dict(tensors)
        return cls(encoder, projection.to(encoder.device), merge=facts["merge"]).eval()


def read_facts(folder: Path | str) -> dict[str, Any]:
    """The metadata saved with an aligned encoder."""
    if not (Path(folder) / _FACTS).exists():
        raise UserError(f"{folder} holds no aligned encoder: it has no {_FACTS}. Give the folder of `align_explicit`.")
    path = Path(folder) / _FACTS
    try:
        facts = read_object(path)
        if facts["merge"] in get_args(Merge):
            return facts
        raise ValueError(f"merge must be one of {', '.join(get_args(Merge))}")
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} is damaged ({error}). Align the model again.") from None


def is_saved(folder: Path | str) -> bool:
    return (Path(folder) / _FACTS).exists()


def random_map(width: int, target_width: int, seed: int) -> nn.Linear:
    """An untrained map; the caller's random state is preserved."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(width, target_width)
