"""Entropies, curvature and invariance of every layer's states, from the states of texts and of two corruptions."""

# N text, L layer, T token, D width, 64 bootstrap blocks

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.flow import Intervention, NothingToRead, PassOptions, Reader, Stream, check_finite, forward
from infoflow.foundation import NUM_BLOCKS, UserError, block_of, current_display, stream
from infoflow.models import tap
from infoflow.results import Column, TableSchema, estimate, estimate_columns, linear_replicates, ratio_estimate

from ._spectra import (
    Weighed,
    check_alpha,
    curvature,
    dime,
    directions,
    entropy_of,
    info_nce,
    lidar,
    spectrum,
    weighed_entropy,
    without_blocks,
)

PROMPT_ENTROPY, DATASET_ENTROPY, CURVATURE = "prompt_entropy", "dataset_entropy", "curvature"
INFO_NCE, LIDAR, DIME = "infonce", "lidar", "dime"
QUANTITIES = (PROMPT_ENTROPY, DATASET_ENTROPY, CURVATURE, INFO_NCE, LIDAR, DIME)
_LEAST = 3  # minimum number of tokens in a text, since an angle needs two steps
_GROUP = 2048  # tokens that the control shuffles together; their states in all layers are in memory at the same time

LAYER_SPECTRUM = TableSchema(
    name="layer_spectrum",
    version=1,
    description="Measures of a layer that need no labels. prompt_entropy: matrix-based entropy of the tokens of a "
    "text, mean over texts; dataset_entropy: entropy of the mean states of all texts; curvature: mean angle between "
    "successive steps from token to token; infonce, lidar, dime: how well two random corruptions of a text are "
    "recognised as one text. Special tokens do not count. Only texts of three tokens or more are read.",
    columns=(
        Column("stack", "string", "", "encoder or decoder"),
        Column("layer", "int64", "", "state 0..L; 0 = embeddings"),
        Column("measure", "string", "", "the quantity, see above"),
        Column("alpha", "float64", "", "order of the entropy, 1: von Neumann; NaN: the measure is not an entropy"),
        *estimate_columns(
            "nats; radians (curvature)",
            "the quantity",
            "entropies: texts made of random tokens of other texts; curvature: the text's tokens in random order; "
            "infonce, lidar: corruptions of two different texts; dime: 0, its value for such corruptions",
            "texts",
        ),
        Column("most", "float64", "nats; radians", "largest possible value"),
    ),
)


class LayerSpectrum(Intervention):
    r"""Measures without labels of each layer: `matrix_entropy`, curvature, InfoNCE, LiDAR and DiME.

    | measure         | value                                                             | control                |
    |-----------------|-------------------------------------------------------------------|------------------------|
    | prompt_entropy  | $S_\alpha$ of a text's tokens, mean over texts                    | tokens of other texts  |
    | dataset_entropy | $S_\alpha$ of the texts' mean states                              | texts of random tokens |
    | curvature       | mean angle of $x_{t+1} - x_t$ and $x_{t+2} - x_{t+1}$             | tokens in random order |
    | infonce         | $\log N$ minus the loss of naming the other corruption of a text   | different texts        |
    | lidar           | $S_\alpha(\Sigma_w^{-1/2} \Sigma_b \Sigma_w^{-1/2})$              | different texts        |
    | dime            | $S_\alpha$ of shuffled pairs of corruptions minus that of pairs   | 0                      |

    Before each entropy, states are centred (tokens over their text, means over all texts) and scaled to length 1, so
    neither a common offset nor a long state dominates the spectrum. A corruption replaces each token, with probability
    `corrupted`, by a token drawn from the corpus. LiDAR's ridge and InfoNCE's temperature are those of the published
    code [@skean2025]. That code also sets negative similarities to 0, and averages states after centring them within
    their text. Neither is done here: the former would not leave a Gram matrix, and the latter gives means near 0.

    Error bars of the first and third measure come from blocks of sentences, those of the others from the derivative of
    the spectrum with respect to each text's weight, with the centre fixed. Compare only rows of equal `count`.

    Args:
        sentences: Maximum number of texts, chosen by a hash: DiME decomposes matrices of this size.
        alpha: Order of all entropies.
        corrupted: Share of tokens that a corruption replaces.

    Source: [@skean2025], [@hosseini2023].
    """

    table: ClassVar[TableSchema] = LAYER_SPECTRUM

    def __init__(self, sentences: int = 500, alpha: float = 1.0, corrupted: float = 0.15) -> None:
        check_alpha(alpha)
        if sentences < 2:
            raise UserError(f"sentences must be at least 2. Got {sentences}.")
        if not 0 < corrupted < 1:
            raise UserError(f"corrupted, a share of tokens, must lie between 0 and 1. Got {corrupted}.")
        self.sentences, self.alpha, self.corrupted = sentences, alpha, corrupted

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        rows, found = reader.rows[: self.sentences], dict[str, _Stack]()
        with current_display().progress(f"Spectra of {reader.model.name}", len(rows)) as progress:
            for group in _groups(reader.lengths(rows)):
                for stack, texts in self._read(reader, rows[group], options).items():
                    found.setdefault(stack, _Stack()).add(texts, self.alpha)
                progress.advance(len(group))
        frames = [row | {"stack": stack} for stack, one in found.items() for row in one.rows(self.alpha)]
        if not frames:
            raise NothingToRead(f"no two texts of {reader.corpus.name} have three tokens for {reader.model.name}")
        return pd.DataFrame(frames, columns=self.table.column_names)

    def _read(self, reader: Reader, rows: np.ndarray, options: PassOptions) -> "dict[str, list[_Text]]":
        """By stack, the texts in the order of `rows`, whatever the batches."""
        found: dict[str, dict[int, _Text]] = {}
        for part in reader.batches(options.tokens_per_batch, rows):
            batch = reader.padded(part)
            seen = [_states(reader, batch)]
            for view in (0, 1):
                streams = {
                    name: self._corrupt(reader, name, one, batch.sentence_ids, view)
                    for name, one in batch.streams.items()
                }
                seen.append(_states(reader, replace(batch, streams=streams)))
            for stack, one in batch.streams.items():
                for index, row in enumerate(part.tolist()):
                    kept = one.valid[index]
                    if int(kept.sum()) >= _LEAST:
                        clean, *views = (states[stack][:, index, kept] for states in seen)
                        text = _Text(int(batch.sentence_ids[index]), clean, [view.mean(1) for view in views])
                        found.setdefault(stack, {})[row] = text
        return {stack: [texts[row] for row in rows.tolist() if row in texts] for stack, texts in found.items()}

    def _corrupt(self, reader: Reader, stack: str, text: Stream, ids: np.ndarray, view: int) -> Stream:
        ends = reader.frequencies[stack].cumsum()
        tokens = text.input_ids.clone()
        for index, sentence in enumerate(ids.tolist()):
            kept = text.valid[index]
            random = stream("layer-spectrum", stack, view, sentence).random((2, int(kept.sum())))
            drawn = torch.from_numpy(np.searchsorted(ends, random[1] * ends[-1], side="right"))
            tokens[index, kept] = torch.where(
                torch.from_numpy(random[0] < self.corrupted), drawn.to(tokens.dtype), tokens[index, kept]
            )
        return replace(text, input_ids=tokens)


@dataclass(frozen=True, slots=True, eq=False)
class _Text:
    sentence: int
    states: Float[Tensor, "layer token width"]
    views: list[Float[Tensor, "layer width"]]  # mean states of both corruptions


def _groups(lengths: np.ndarray) -> Iterator[np.ndarray]:
    """Consecutive texts of at least `_GROUP` tokens together, and at least two; the last group may be smaller."""
    first, num = 0, len(lengths)
    for end in range(1, num + 1):
        full = end - first > 1 and lengths[first:end].sum() >= _GROUP and num - end > 1
        if full or end == num:
            yield np.arange(first, end)
            first = end


def _states(reader: Reader, batch: Any) -> dict[str, Float[Tensor, "layer sentence token width"]]:
    with torch.inference_mode(), tap(reader.model, hidden=True) as seen:
        forward(reader.model, batch.to(reader.model.device))
        check_finite(reader.model, seen.hidden, batch)
        return {stack: torch.stack(list(states)).double().cpu() for stack, states in seen.hidden.items()}


@dataclass(slots=True, eq=False)
class _Stack:
    """For each layer of a stack, a few numbers and the mean states of the texts."""

    sentences: list[int] = field(default_factory=list)
    own: dict[str, list[Tensor]] = field(default_factory=dict)  # per text: (value and control, layer)
    most: list[float] = field(default_factory=list)  # largest prompt entropy of each text
    means: dict[str, list[Tensor]] = field(default_factory=dict)  # per text: (layer, width), float32

    def add(self, texts: list[_Text], alpha: float) -> None:
        if not texts:
            return
        mixed = _mixed(texts)
        for text, other in zip(texts, mixed, strict=True):
            order = torch.from_numpy(stream("layer-spectrum-order", text.sentence).permutation(text.states.shape[1]))
            entropies = [entropy_of(spectrum(directions(one)), alpha) for one in (text.states, other)]
            angles = [curvature(one) for one in (text.states, text.states[:, order])]
            self.own.setdefault(PROMPT_ENTROPY, []).append(torch.stack(entropies))
            self.own.setdefault(CURVATURE, []).append(torch.stack(angles))
            named = {"clean": text.states.mean(1), "mixed": other.mean(1), "x": text.views[0], "y": text.views[1]}
            for name, mean in named.items():
                self.means.setdefault(name, []).append(mean.float())
            self.most.append(_largest(*text.states.shape[1:]))
            self.sentences.append(text.sentence)

    def rows(self, alpha: float) -> Iterator[dict[str, Any]]:
        blocks = block_of(np.array(self.sentences, dtype=np.int64))
        if len(blocks) < 2:
            return
        means = {name: torch.stack(own) for name, own in self.means.items()}
        num, layers, width = means["clean"].shape
        most = {
            PROMPT_ENTROPY: float(np.mean(self.most)),
            DATASET_ENTROPY: _largest(num, width),
            CURVATURE: math.pi,
            **dict.fromkeys((INFO_NCE, DIME), math.log(num)),
            LIDAR: _largest(num, width),
        }
        for layer in range(layers):
            found = self._of_texts(layer, blocks) | self._of_all(layer, blocks, alpha, means)
            for measure, row in found.items():
                order = math.nan if measure in (CURVATURE, INFO_NCE) else alpha
                yield {"layer": layer, "measure": measure, "alpha": order, "most": most[measure], **row}

    def _of_texts(self, layer: int, blocks: np.ndarray) -> dict[str, dict[str, Any]]:
        """Means over texts; texts without a value are left out."""
        found = {}
        for measure, own in self.own.items():
            value, control = torch.stack(own)[:, :, layer].numpy().T
            known = np.isfinite(value)
            sums, counts = (
                np.bincount(blocks[known], weights=w, minlength=NUM_BLOCKS)
                for w in (value[known], np.ones(known.sum()))
            )
            baseline = float(np.nanmean(control)) if np.isfinite(control).any() else math.nan
            found[measure] = ratio_estimate(sums, counts, baseline, "positive")
        return found

    def _of_all(
        self, layer: int, blocks: np.ndarray, alpha: float, means: dict[str, Tensor]
    ) -> dict[str, dict[str, Any]]:
        clean, mixed = (directions(means[name][:, layer].double()) for name in ("clean", "mixed"))
        both = directions(torch.cat([means["x"][:, layer], means["y"][:, layer]]).double())
        x, y = both.chunk(2)
        other = y.roll(1, 0)  # texts are in the order of a hash
        found: dict[str, tuple[Weighed, float]] = {
            DATASET_ENTROPY: (weighed_entropy(clean, alpha), float(entropy_of(spectrum(mixed), alpha))),
            INFO_NCE: (info_nce(x, y), info_nce(x, other).value),
            LIDAR: (lidar(x, y, alpha), lidar(x, other, alpha).value),
            DIME: (dime(x, y, alpha), 0.0),
        }
        return {name: _row(one, baseline, blocks) for name, (one, baseline) in found.items()}


def _row(found: Weighed, baseline: float, blocks: np.ndarray) -> dict[str, Any]:
    replicates = linear_replicates(found.value, without_blocks(found, blocks, NUM_BLOCKS))
    return estimate(found.value, replicates, baseline, len(blocks), units=len(np.unique(blocks)))


def _mixed(texts: list[_Text]) -> list[Tensor]:
    """Texts of the same lengths, with tokens from random texts of the group."""
    lengths = [text.states.shape[1] for text in texts]
    order = stream("layer-spectrum-mixed", texts[0].sentence, len(texts)).permutation(sum(lengths))
    every = torch.cat([text.states for text in texts], dim=1)
    return list(every[:, torch.from_numpy(order)].split(lengths, dim=1))


def _largest(rows: int, width: int) -> float:
    """Largest entropy of centred rows."""
    return math.log(min(rows - 1, width))
