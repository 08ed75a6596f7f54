"""From corrupted sentences to one padded batch of tensors."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

UNSUPERVISED = -100
"""The label of a position that the loss does not look at (PyTorch's and Hugging Face's convention)."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Corrupted:
    """One sentence as an objective shows it to the model."""

    inputs: np.ndarray  # (source token,): what the model, or its encoder, reads
    labels: np.ndarray  # (token,) of the stack that predicts; UNSUPERVISED where nothing is asked
    selected: np.ndarray  # bool (source token,): positions of the input that noise chose, changed or not
    decoder_inputs: np.ndarray | None = None  # (target token,): what the decoder reads


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Batch:
    """Right-padded sentences. A mask is None where nothing is padded, which lets attention run without one."""

    input_ids: Tensor  # int64 (batch, token)
    labels: Tensor  # int64 (batch, token of the predicting stack)
    attention_mask: Tensor | None = None  # int64 (batch, token), 0 at padding
    decoder_input_ids: Tensor | None = None  # int64 (batch, target token)
    source_tokens: int  # without padding, specials included
    target_tokens: int  # read by the decoder; 0 without one
    supervised_tokens: int

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        if device.type == "cpu":
            return self
        names = ("input_ids", "labels", "attention_mask", "decoder_input_ids")
        tensors = {name: getattr(self, name) for name in names}
        moved = {name: None if t is None else t.to(device, non_blocking=True) for name, t in tensors.items()}
        return replace(self, **moved)


def collate(examples: list[Corrupted], pad: int, decoder_pad: int) -> Batch:
    """Pad `examples` on the right."""
    inputs = [example.inputs for example in examples]
    labels = [example.labels for example in examples]
    decoder_inputs = [example.decoder_inputs for example in examples if example.decoder_inputs is not None]
    lengths = np.array([len(row) for row in inputs])
    padded_labels = pad_arrays(labels, UNSUPERVISED)
    return Batch(
        input_ids=torch.from_numpy(pad_arrays(inputs, pad)),
        labels=torch.from_numpy(padded_labels),
        attention_mask=_mask(lengths),
        decoder_input_ids=torch.from_numpy(pad_arrays(decoder_inputs, decoder_pad)) if decoder_inputs else None,
        source_tokens=int(lengths.sum()),
        target_tokens=sum(len(row) for row in decoder_inputs),
        supervised_tokens=int((padded_labels != UNSUPERVISED).sum()),
    )


def pad_arrays(rows: list[np.ndarray], value: int) -> np.ndarray:
    """Rows of unequal length as one int64 array, padded with `value` on the right."""
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), lengths.max()), value, dtype=np.int64)
    padded[np.arange(lengths.max()) < lengths[:, None]] = np.concatenate(rows)
    return padded


def _mask(lengths: np.ndarray) -> Tensor | None:
    if (lengths == lengths.max()).all():
        return None
    return torch.from_numpy((np.arange(lengths.max()) < lengths[:, None]).astype(np.int64))
