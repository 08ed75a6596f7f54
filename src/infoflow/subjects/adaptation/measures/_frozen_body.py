"""A frozen body, computed once for every text."""

# B text, T token, D width

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions, Seq2SeqModelOutput

from infoflow.foundation import UserError

from ._feature_store import FeatureStore


class FrozenBody(nn.Module):
    """Replaces a body: looks up the last states of texts, and computes missing ones.

    The body runs in evaluation mode, in float32; a pooler follows it and may be trained. Padding is on the right; its
    states are 0 and no task uses them.
    """

    def __init__(self, body: PreTrainedModel, store: FeatureStore) -> None:
        super().__init__()
        self._body = (body,)  # in a tuple, so that it is not a submodule and not in checkpoints
        self._store = store
        self.config = body.config
        self.pooler: Any = getattr(body, "pooler", None)
        self._activation: Any = getattr(body, "pooler_activation", None)  # ALBERT's pooler is only a linear map

    @property
    def body(self) -> PreTrainedModel:
        """The body itself."""
        return self._body[0]

    def forward(
        self, input_ids: Int[Tensor, "text token"], attention_mask: Int[Tensor, "text token"] | None = None, **more: Any
    ) -> BaseModelOutputWithPoolingAndCrossAttentions | Seq2SeqModelOutput:
        """The last states of the texts, as the body returns them."""
        tensors = {"input_ids": input_ids, "attention_mask": attention_mask, **more}
        lengths = self._lengths(input_ids, attention_mask)
        keys = _keys(input_ids, lengths, more.get("token_type_ids"))
        self._compute([row for row, key in enumerate(keys) if key not in self._store], tensors, keys, lengths)
        states_BTD = self._looked_up(keys, input_ids.shape[1]).to(input_ids.device)
        if self.config.is_encoder_decoder:
            return Seq2SeqModelOutput(last_hidden_state=states_BTD)  # type: ignore[arg-type]
        return BaseModelOutputWithPoolingAndCrossAttentions(
            last_hidden_state=states_BTD, pooler_output=self._pooled(states_BTD)
        )  # type: ignore[arg-type]

    def _pooled(self, states_BTD: Float[Tensor, "text token width"]) -> Float[Tensor, "text width"] | None:
        if self.pooler is None or self._activation is None:
            return None if self.pooler is None else self.pooler(states_BTD)
        return self._activation(self.pooler(states_BTD[:, 0]))

    @staticmethod
    def _lengths(input_ids: Tensor, attention_mask: Tensor | None) -> list[int]:
        if attention_mask is None:
            return [input_ids.shape[1]] * len(input_ids)
        return attention_mask.sum(dim=1).tolist()

    def _compute(self, rows: list[int], tensors: dict[str, Any], keys: list[bytes], lengths: list[int]) -> None:
        if not rows:
            return
        size = len(keys)
        chosen = {
            name: value[rows] if isinstance(value, Tensor) and value.ndim and len(value) == size else value
            for name, value in tensors.items()
        }
        self.body.eval()
        device = tensors["input_ids"].device
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            states_BTD = self.body.to(device)(**chosen).last_hidden_state.float().cpu().numpy()
        self._store.add({keys[row]: states_BTD[i, : lengths[row]] for i, row in enumerate(rows)})

    def _looked_up(self, keys: list[bytes], longest: int) -> Float[Tensor, "text token width"]:
        found = [self._store.get(key) for key in keys]
        states_BTD = np.zeros((len(keys), longest, found[0].shape[1]), dtype=np.float32)
        for row, values_TD in enumerate(found):
            states_BTD[row, : len(values_TD)] = values_TD
        return torch.from_numpy(states_BTD)


def _keys(ids_BT: Tensor, lengths: list[int], kinds_BT: Tensor | None) -> list[bytes]:
    """A hash of each text's tokens, and of their segments if the model uses them."""
    parts = [each.cpu().numpy() for each in (ids_BT, kinds_BT) if each is not None]
    return [
        hashlib.blake2b(b"|".join(part[row, :length].tobytes() for part in parts), digest_size=16).digest()
        for row, length in enumerate(lengths)
    ]


@contextmanager
def frozen_body(module: PreTrainedModel, store: FeatureStore) -> Iterator[None]:
    """Replace the module's body by a `FrozenBody`; afterwards the body is restored, with the trained pooler.

    Raises:
        UserError: The module keeps its stacks next to its head, not in one body.
    """
    name, body = module.base_model_prefix, module.base_model
    if body is module or not isinstance(body, PreTrainedModel):
        raise UserError(
            f"method = frozen trains a head on one body, and {type(module).__name__} has none. Choose full, top, decay "
            "or lora."
        )
    setattr(module, name, FrozenBody(body, store))
    try:
        yield
    finally:
        setattr(module, name, body)
