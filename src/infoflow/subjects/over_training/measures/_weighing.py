"""Content of a checkpoint's files, one tensor in memory at a time: digests, norms, faults, a sketch of its matrices."""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError, digest, stream

from ._places import weight_paths

SKETCHED = 1 << 20
"""Weights in a sketch.

For a larger model this many are sampled, the same ones at each checkpoint: a distance is then off by about a third of a
percent (a million draws of squares whose kurtosis is 50), while K4 reacts to two percent.
"""

_BUFFERS = (".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq",
            ".position_ids", ".inv_freq")  # fmt: skip
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "merges.txt", "spiece.model", "tokenizer.model")
_MOMENTARY = ("padding", "truncation")  # entries of tokenizer.json that depend on the last call
_VOLATILE = (
    "_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache", "_commit_hash",
    "_attn_implementation", "gradient_checkpointing",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensors:
    """Summary of each tensor of a checkpoint, by name."""

    shapes: dict[str, list[int]] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    norms: dict[str, float] = field(default_factory=dict)  # only of matrices
    not_finite: list[str] = field(default_factory=list)
    constant: list[str] = field(default_factory=list)  # matrices of one value, such as 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Weight:
    """Summary of a checkpoint: everything that the checks need, except its sketch."""

    digest: str  # digest of all tensors, equal for equal weights in any storage
    tensors: Tensors
    config: dict[str, Any]  # without entries irrelevant to the model
    tokenizer: str  # digest of the tokenizer saved with the weights; "": none
    tokens: int = 0  # size of that tokenizer; 0: unknown

    @property
    def dtype(self) -> str:
        """Data type of most of its weights."""
        sizes: dict[str, int] = {}
        for name, dtype in self.tensors.dtypes.items():
            sizes[dtype] = sizes.get(dtype, 0) + math.prod(self.tensors.shapes[name])
        return max(sizes, key=lambda dtype: sizes[dtype], default="")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "Weight":
        return cls(**{**value, "tensors": Tensors(**value["tensors"])})


def weigh(folder: Path) -> tuple[Weight, Float[np.ndarray, " drawn"]]:
    """A checkpoint's summary and its sketch, whose Euclidean distances are those between checkpoints' matrices.

    Matrices only: gains start at 1 and biases at 0 for every seed, so with them a model of another run would look
    related. Up to `SKETCHED` weights the sketch is all of them; otherwise, a sample by tensor, name and shape.
    """
    tensors, digests, sketches = Tensors(), {}, {}
    share = min(1.0, SKETCHED / max(1, sum(math.prod(shape) for shape in _shapes(folder))))
    for name, tensor in read_tensors(folder):
        if not tensor.is_floating_point() or name.endswith(_BUFFERS):
            continue
        tensors.shapes[name], tensors.dtypes[name] = list(tensor.shape), str(tensor.dtype).removeprefix("torch.")
        digests[name] = _digest(tensor)
        weights = tensor.to(torch.float32).flatten()
        if not bool(weights.isfinite().all()):
            tensors.not_finite.append(name)
        elif tensor.ndim > 1:
            tensors.norms[name] = float(weights.double().norm())
            if weights.numel() > 1 and bool((weights == weights[0]).all()):
                tensors.constant.append(name)
            sketches[name] = _drawn(name, weights, share)
    configuration = _config(folder)
    tokenizer, size = _tokenizer(folder)
    facts = Weight(
        digest=digest(sorted(digests.items())), tensors=tensors, config=configuration, tokenizer=tokenizer, tokens=size
    )
    empty = np.zeros(0, dtype=np.float32)
    return facts, np.concatenate([empty, *(sketches[name] for name in sorted(sketches))])


def read_tensors(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a folder's weights by name, one at a time from safetensors, one file at a time from `.bin`."""
    for path in weight_paths(folder):
        try:
            yield from _safetensors(path) if path.suffix == ".safetensors" else _pickled(path)
        except UserError:
            raise
        except Exception as error:
            why = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise UserError(f"{path} cannot be read: {why}. Save or download that checkpoint again.") from error


def _safetensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118 (no mapping)
            yield name, file.get_tensor(name)


def _pickled(path: Path) -> Iterable[tuple[str, Tensor]]:
    state = torch.load(path, map_location="cpu", weights_only=True)
    return [(name, tensor) for name, tensor in state.items() if isinstance(tensor, Tensor)]


def _shapes(folder: Path) -> Iterator[tuple[int, ...]]:
    from safetensors import safe_open

    for path in weight_paths(folder):
        if path.suffix != ".safetensors":
            yield from (tuple(tensor.shape) for _, tensor in read_tensors(folder) if tensor.ndim > 1)
            return
        try:
            with safe_open(path, framework="pt") as file:
                shapes = [tuple(file.get_slice(name).get_shape()) for name in file.keys()]  # noqa: SIM118
        except Exception as error:
            raise UserError(
                f"{path} cannot be read: {str(error)[:200]}. Save or download that checkpoint again."
            ) from error
        yield from (shape for shape in shapes if len(shape) > 1)


def _digest(tensor: Tensor) -> str:
    hashed = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    hashed.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()


def _drawn(name: str, weights: Float[Tensor, " weight"], share: float) -> Float[np.ndarray, " drawn"]:
    """All weights, or a sampled share scaled so that the sum of squares is that of all weights on average."""
    if share >= 1:
        return weights.numpy()
    number = max(1, math.floor(len(weights) * share))
    places = stream("checkpoint-sketch", name, len(weights)).integers(0, len(weights), number)
    return (weights[torch.from_numpy(places)] * math.sqrt(len(weights) / number)).numpy()


def _config(folder: Path) -> dict[str, Any]:
    """The configuration's entries relevant to the model; dropout is irrelevant after training."""
    try:
        entries = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{folder / 'config.json'} is not readable JSON. Save or download it again.") from error
    if not isinstance(entries, dict):
        raise UserError(f"{folder / 'config.json'} must hold a JSON object. Save or download it again.")
    return {
        name: value for name, value in entries.items() if name not in _VOLATILE and not name.endswith(("drop", "pdrop"))
        and "dropout" not in name
    }  # fmt: skip


def _tokenizer(folder: Path) -> tuple[str, int]:
    present = {name: (folder / name).read_bytes() for name in _TOKENIZERS if (folder / name).is_file()}
    if "tokenizer.json" not in present:
        hashes = {name: hashlib.sha256(data).hexdigest() for name, data in present.items()}
        return (digest(hashes) if present else ""), 0
    try:
        entries = json.loads(present["tokenizer.json"])
        size = len(entries["model"]["vocab"])
        return digest({name: value for name, value in entries.items() if name not in _MOMENTARY}), size
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return digest(hashlib.sha256(present["tokenizer.json"]).hexdigest()), 0
