"""A model's body, the part that pretraining and tuning share; a frozen body is computed once for every text."""

# T token, D width
# B text, T token, D width

import hashlib
import inspect
import os
import secrets
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from infoflow._transformers import (
    BaseModelOutputWithPoolingAndCrossAttentions,
    EncoderDecoderModel,
    PreTrainedModel,
    Seq2SeqModelOutput,
)
from infoflow.foundation import UserError
from infoflow.models import FastLinear, Model, ParameterGroup, load_model, without_cache

from ._task_parts import TaskBatch
from ._task_rows import SEGMENTS, has_segments

# A model's body: the part that pretraining and tuning share, without prediction heads.

OF_HEADS = ("head", "pooler")  # a pooler is created if the pretrained model lacks one
EMBEDDINGS = ("embeddings", "positions", "segments")


@dataclass(frozen=True, kw_only=True, slots=True)
class BodyGroup:
    """One parameter group of a body; `name` is the same in every model with this body."""

    name: str
    group: ParameterGroup

    @property
    def layer(self) -> int:
        """Block, from 0; -1 outside of the blocks."""
        return -1 if self.group.layer is None else self.group.layer

    @property
    def component(self) -> str:
        """See `component_name`."""
        return component_name(self.group.component, self.group.kind)

    @property
    def of_embeddings(self) -> bool:
        """Whether the group lies below the blocks."""
        return self.layer < 0 and (self.group.component in EMBEDDINGS or "emb" in self.name)


def component_name(component: str, kind: str | None) -> str:
    """The anatomy's name of a component, with the prefix "cross" in cross-attention."""
    return f"cross {component}" if kind == "cross" else component


def body_groups(model: Model) -> list[BodyGroup]:
    """The parameter groups of a model's body."""
    every = dict(model.module.named_parameters())
    # Looked up by identity, since a matrix tied to an output matrix may have that matrix's name.
    inside = {parameter: name for name, parameter in model.module.base_model.named_parameters()}
    found = [(inside.get(every[group.slice.parameter]), group) for group in model.anatomy.parameter_groups]
    return [BodyGroup(name=name, group=group) for name, group in found if name and group.component not in OF_HEADS]


def body_parameters(model: Model) -> dict[str, nn.Parameter]:
    """A body's parameters by name; names are the same in every model with this body."""
    parameters = dict(model.module.base_model.named_parameters())
    return {one.name: parameters[one.name] for one in body_groups(model)}


def began_as(before: Model, after: Sequence[Model]) -> Model:
    """The model from which tuning started; it shares its weights with `before`.

    This is `before`, or the encoder of a two-model `EncoderDecoderModel` if only the encoder was tuned.
    """
    start, module = before, before.module
    if isinstance(module, EncoderDecoderModel) and not any(
        isinstance(one.module, EncoderDecoderModel) for one in after
    ):
        start = replace(load_model(module.encoder, tokenizer=before.tokenizer), name=before.name)
    for one in after:
        check_bodies(start, one)
    return start


def check_bodies(before: Model, after: Model) -> None:
    """Raise a UserError if `after` was not tuned from `before`."""
    ours, theirs = ({name: tuple(p.shape) for name, p in body_parameters(one).items()} for one in (before, after))
    if ours == theirs:
        return
    odd = next(name for name in [*ours, *theirs] if ours.get(name) != theirs.get(name))
    raise UserError(
        f"A tuned model can only be compared with its pretrained model. {odd} has the shape "
        f"{ours.get(odd, 'none')} in {before.name} and {theirs.get(odd, 'none')} in {after.name}. Pass the pretrained "
        "model that was tuned, and merge adapters into the weights."
    )


def run_body(model: Model, batch: TaskBatch) -> None:
    """Run the stacks without any head on the task's examples; inspect them with a `tap`."""
    body = model.module.base_model
    with FastLinear():
        if len(model.anatomy.stacks) > 1 and "decoder_input_ids" not in batch.inputs:
            encoder = model.module.get_encoder()
            encoder(**_accepted(encoder, batch.inputs))
            return
        body(**_accepted(body, batch.inputs), **without_cache(body))


def _accepted(module: PreTrainedModel, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    names = set(inspect.signature(module.forward).parameters) - (set() if has_segments(module) else {SEGMENTS})
    return {name: value for name, value in inputs.items() if name in names}


@contextmanager
def with_weights(model: Model, values: Mapping[str, Tensor]) -> Iterator[None]:
    """Replace some of the body's parameters inside a `with` block.

    The model's own parameters are restored exactly, even after an error.
    """
    parameters = body_parameters(model)
    saved = {name: parameters[name].detach().clone() for name in values}
    try:
        _write(parameters, values)
        yield
    finally:
        _write(parameters, saved)


@torch.no_grad()
def _write(parameters: Mapping[str, nn.Parameter], values: Mapping[str, Tensor]) -> None:
    for name, value in values.items():
        parameters[name].copy_(value)


# Features that a frozen body computed from texts, on disk.

_RECORD = struct.Struct("<16sqii")  # key, position of the first number in the file, tokens, width


class FeatureStore:
    """Features by input key, in append-only, memory-mapped files of any size.

    Every process writes its own files and reads those that existed when it started, so several may share a folder. If a
    process is killed, all entries remain complete, since numbers are written before the entry that refers to them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._places: dict[bytes, tuple[Path, int, int, int]] = {}
        self._maps: dict[Path, np.ndarray] = {}
        for index in sorted(folder.glob("*.index")):
            self._places |= {key: place for key, *place in _entries(index)}  # type: ignore[misc]
        name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._own, self._index = folder / f"{name}.numbers", folder / f"{name}.index"

    def __contains__(self, key: bytes) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self._places)

    def get(self, key: bytes) -> Float[np.ndarray, "token width"]:
        """The features of one text, a view of the file."""
        path, start, tokens, width = self._places[key]
        stop = start + tokens * width
        if path not in self._maps or len(self._maps[path]) < stop:
            self._maps[path] = np.memmap(path, dtype=np.float32, mode="r")
        return self._maps[path][start:stop].reshape(tokens, width)

    def add(self, entries: dict[bytes, Float[np.ndarray, "token width"]]) -> None:
        """Store the features of some texts."""
        records = []
        with self._own.open("ab") as file:
            for key, values_TD in entries.items():
                start = file.tell() // 4
                file.write(np.ascontiguousarray(values_TD, dtype=np.float32).data)
                records.append((key, start, *values_TD.shape))
        with self._index.open("ab") as file:
            file.write(b"".join(_RECORD.pack(*record) for record in records))
        self._places |= {key: (self._own, *place) for key, *place in records}  # type: ignore[misc]


def _entries(index: Path) -> Iterator[tuple[bytes, Path, int, int, int]]:
    """Key and location of each entry, except one that is incomplete because a process was killed."""
    numbers = index.with_suffix(".numbers")
    data = index.read_bytes()
    for key, start, tokens, width in _RECORD.iter_unpack(data[: len(data) // _RECORD.size * _RECORD.size]):
        yield key, numbers, start, tokens, width


# A frozen body, computed once for every text.


class LayerMix(nn.Module):
    r"""ELMo's task-specific mix of all states: $\gamma \sum_l \mathrm{softmax}(s)_l h_l$ ([@peters2018deep]).

    It starts as the mean over the input embeddings and the layers (s = 0, γ = 1).
    """

    def __init__(self, num_states: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(num_states))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, states: Float[Tensor, "text token all"]) -> Float[Tensor, "text token width"]:
        """The mix of states that are concatenated in the last dimension."""
        weights = self.scores.softmax(0)
        return self.scale * torch.einsum("btlw,l->btw", states.unflatten(2, (len(weights), -1)), weights)

    @property
    def shares(self) -> list[float]:
        """softmax(s), from the embeddings to the last layer."""
        return self.scores.detach().softmax(0).tolist()


class FrozenBody(nn.Module):
    """Replaces a body: looks up the states of texts, and computes missing ones.

    The body runs in evaluation mode, in float32; a pooler follows it and may be trained. Padding is on the right; its
    states are 0 and no task uses them.
    """

    def __init__(self, body: PreTrainedModel, store: FeatureStore | None, mix: LayerMix | None = None) -> None:
        """With a `mix`, all states are mixed, instead of the last ones; without a `store`, nothing is cached."""
        super().__init__()
        self._body = (body,)  # in a tuple, so that it is not a submodule and not in checkpoints
        self._store = store
        self.mix = mix
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
        """The last states of the texts, or their mix, as the body returns them."""
        tensors = {"input_ids": input_ids, "attention_mask": attention_mask, **more}
        if self._store is None:
            states_BTD = self._computed(tensors)
        else:
            mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
            lengths = mask.sum(dim=1).tolist()
            keys = _keys(input_ids, lengths, more.get("token_type_ids"))
            self._add(self._store, tensors, keys, lengths)
            states_BTD = self._looked_up(self._store, keys, input_ids.shape[1])
        states_BTD = states_BTD.to(input_ids.device)
        if self.mix is not None:
            states_BTD = self.mix(states_BTD)
        if self.config.is_encoder_decoder:
            return Seq2SeqModelOutput(last_hidden_state=states_BTD)  # type: ignore[arg-type]
        return BaseModelOutputWithPoolingAndCrossAttentions(
            last_hidden_state=states_BTD, pooler_output=self._pooled(states_BTD)
        )  # type: ignore[arg-type]

    def _pooled(self, states_BTD: Float[Tensor, "text token width"]) -> Float[Tensor, "text width"] | None:
        if self.pooler is None or self._activation is None:
            return None if self.pooler is None else self.pooler(states_BTD)
        return self._activation(self.pooler(states_BTD[:, 0]))

    def _add(self, store: FeatureStore, tensors: dict[str, Any], keys: list[bytes], lengths: list[int]) -> None:
        rows = [row for row, key in enumerate(keys) if key not in store]
        if not rows:
            return
        size = len(keys)
        chosen = {
            name: value[rows] if isinstance(value, Tensor) and value.ndim and len(value) == size else value
            for name, value in tensors.items()
        }
        states_BTD = self._computed(chosen).cpu().numpy()
        store.add({keys[row]: states_BTD[i, : lengths[row]] for i, row in enumerate(rows)})

    def _computed(self, tensors: dict[str, Any]) -> Float[Tensor, "text token width"]:
        """The last states, or for a mix all states concatenated."""
        self.body.eval()
        device = tensors["input_ids"].device
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            output = self.body.to(device)(**tensors, **({} if self.mix is None else {"output_hidden_states": True}))
        if self.mix is None:
            return output.last_hidden_state.float()
        # of the decoder if there are two stacks
        states = output.decoder_hidden_states if hasattr(output, "decoder_hidden_states") else output.hidden_states
        return torch.cat(states, dim=2).float()

    @staticmethod
    def _looked_up(store: FeatureStore, keys: list[bytes], longest: int) -> Float[Tensor, "text token width"]:
        found = [store.get(key) for key in keys]
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


def mixed_body(module: PreTrainedModel, shares: Sequence[float], scale: float) -> None:
    """Replace the body of a tuned model, in place, so that its head reads the mix of states used in tuning."""
    mix = LayerMix(len(shares))
    with torch.no_grad():
        mix.scores.copy_(torch.tensor(shares).log())
        mix.scale.fill_(scale)
    setattr(module, module.base_model_prefix, FrozenBody(module.base_model, None, mix))


@contextmanager
def frozen_body(module: PreTrainedModel, store: FeatureStore, mix: LayerMix | None = None) -> Iterator[None]:
    """Replace the module's body by a `FrozenBody` inside a `with` block; afterwards, the pooler stays trained."""
    name, body = module.base_model_prefix, module.base_model
    if body is module or not isinstance(body, PreTrainedModel):
        raise UserError(
            f"Methods frozen and mix train a head on one body, and {type(module).__name__} has none. Choose full, top, "
            "decay or lora."
        )
    setattr(module, name, FrozenBody(body, store, mix))
    try:
        yield
    finally:
        setattr(module, name, body)
