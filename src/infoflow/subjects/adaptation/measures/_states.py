"""States of a task's examples in every layer, and means over several tuned models."""

# N word or example, S state (embeddings, then each block), D width

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float32, Int
from torch import Tensor

from infoflow.foundation import Interval, Scale, hash64_array, interval_over_seeds
from infoflow.models import Model, tap
from infoflow.objectives import UNSUPERVISED
from infoflow.results import TableSchema, estimate

from ._body import run_body
from ._tables import TUNED
from ._task_parts import TaskBatch, TaskPart


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class States:
    """One model's states for the examples of one part."""

    words: Mapping[str, Float32[np.ndarray, "word state width"]]  # by stack: the words that `Places` chose
    texts: Float32[np.ndarray, "row state width"]
    """For each row of the part, the mean over its text tokens, in the reading stack."""
    labelled: Float32[np.ndarray, "label state width"]
    """One row for each token with its own label; empty if whole texts are labelled."""


class Places:
    """The words whose states are read: at most `words` of each stack, chosen by hash, the same for all models."""

    def __init__(self, part: TaskPart, words: int) -> None:
        self.part, self.tags = part, part.task.shape == "tagging"
        self.chosen = {stack: self._choose(stack, words) for stack in part.batches[0].text}
        self._states: dict[Model, States] = {}

    def states(self, model: Model) -> States:
        """The states of a model at these positions; the first call for a model reads them and keeps them."""
        if model not in self._states:
            self._states[model] = _read(model, self)
        return self._states[model]

    def _choose(self, stack: str, words: int) -> list[Bool[Tensor, "row token"]]:
        keys = [self._keys(batch, stack) for batch in self.part.batches]
        masks = [batch.text[stack] for batch in self.part.batches]
        every = np.sort(np.concatenate([key[mask.cpu().numpy()] for key, mask in zip(keys, masks, strict=True)]))
        limit = every[min(words, len(every)) - 1] if len(every) else 0
        return [mask & torch.from_numpy(key <= limit).to(mask.device) for key, mask in zip(keys, masks, strict=True)]

    def _keys(self, batch: TaskBatch, stack: str) -> Int[np.ndarray, "row token"]:
        ids = np.repeat(self.part.sentence_ids[batch.index], batch.rows_each)
        of_text = hash64_array(("tuning-words", self.part.options.seed), ids)
        number, width = np.arange(len(ids)) % batch.rows_each, batch.tokens(stack).shape[1]
        place = number[:, None] * (1 << 20) + np.arange(width)
        of_place = hash64_array(("tuning-places",), place.ravel()).reshape(place.shape)
        return ((of_text[:, None] ^ of_place) >> np.uint64(1)).astype(np.int64)

    @cached_property
    def blocks(self) -> dict[str, Int[np.ndarray, " word"]]:
        """Bootstrap block of each word, by stack."""
        return {stack: self._of_rows(stack, self.part.blocks) for stack in self.chosen}

    @cached_property
    def tokens(self) -> dict[str, Int[np.ndarray, " word"]]:
        """Token id of each word, by stack."""
        return {
            stack: np.concatenate([b.tokens(stack)[m].cpu().numpy() for b, m in self._masks(stack)])
            for stack in self.chosen
        }

    @cached_property
    def following(self) -> dict[str, Int[np.ndarray, " word"]]:
        """The text token after each word, by stack; −1 at the end of the text."""
        found = {}
        for stack in self.chosen:
            parts = []
            for batch, mask in self._masks(stack):
                after = batch.tokens(stack).roll(-1, dims=1)
                has = batch.text[stack].roll(-1, dims=1)
                has[:, -1] = False
                parts.append(after.masked_fill(~has, -1)[mask].cpu().numpy())
            found[stack] = np.concatenate(parts)
        return found

    @cached_property
    def labels(self) -> np.ndarray:
        """The labels of the part: of its rows, or of its tokens in the order of `States.labelled`."""
        if self.tags:
            return np.concatenate([b.batch.labels[labelled(b)].cpu().numpy() for b in self.part.batches])
        labels = [b.batch.labels.cpu().numpy() for b in self.part.batches]
        order = np.argsort(np.concatenate([b.index for b in self.part.batches]))
        return np.concatenate(labels)[order]

    @cached_property
    def label_blocks(self) -> Int[np.ndarray, " label"]:
        """Bootstrap block of each label."""
        if not self.tags:
            return self.part.blocks
        return np.concatenate(
            [self.part.blocks[b.index][labelled(b).nonzero()[:, 0].cpu().numpy()] for b in self.part.batches]
        )

    def _masks(self, stack: str) -> list[tuple[TaskBatch, Tensor]]:
        return list(zip(self.part.batches, self.chosen[stack], strict=True))

    def _of_rows(self, stack: str, values: np.ndarray) -> np.ndarray:
        found = []
        for batch, mask in self._masks(stack):
            of_row = np.repeat(values[batch.index], batch.rows_each)
            found.append(of_row[mask.nonzero()[:, 0].cpu().numpy()])
        return np.concatenate(found)


def labelled(batch: TaskBatch) -> Bool[Tensor, "row token"]:
    """Which tokens have their own label."""
    return batch.batch.labels != UNSUPERVISED


def _read(model: Model, places: Places) -> States:
    """The states of a model's body at these positions, in one pass; they do not depend on batches or padding."""
    words: dict[str, list[np.ndarray]] = {stack: [] for stack in places.chosen}
    texts, tagged, index = [], [], []
    reads = model.anatomy.reads.name
    with torch.inference_mode(), tap(model, hidden=True) as seen:
        for number, batch in enumerate(places.part.batches):
            run_body(model, batch)
            for stack, masks in places.chosen.items():
                words[stack].append(_picked(seen.hidden[stack], masks[number]))
            texts.append(_means(seen.hidden[reads], batch))
            index.append(batch.index)
            if places.tags:
                tagged.append(_picked(seen.hidden[reads], labelled(batch)))
    order = np.argsort(np.concatenate(index))
    together = np.concatenate(texts)[order]
    none = np.zeros((0, *together.shape[1:]), dtype=np.float32)
    return States(
        words={stack: np.concatenate(parts) for stack, parts in words.items()},
        texts=together,
        labelled=np.concatenate(tagged) if tagged else none,
    )


def _picked(layers: list[Tensor], mask: Tensor) -> Float32[np.ndarray, "word state width"]:
    return torch.stack([layer[mask].float() for layer in layers], dim=1).cpu().numpy()


def _means(layers: list[Tensor], batch: TaskBatch) -> Float32[np.ndarray, "row state width"]:
    """The mean over each example's text tokens, answer choices included; 0 without such tokens."""
    (mask,) = (batch.text[stack] for stack in list(batch.text)[:1])
    weights = mask.to(layers[0].dtype).unsqueeze(-1)
    of_example = (len(batch.batch), batch.rows_each, *mask.shape[1:])
    counts = weights.unflatten(0, of_example[:2]).sum((1, 2)).clamp(min=1)
    means = [(layer * weights).unflatten(0, of_example[:2]).sum((1, 2)) / counts for layer in layers]
    return torch.stack(means, dim=1).float().cpu().numpy()


# Means over several tuned models.


def mean_estimate(rows: Sequence[Mapping[str, Any]], scale: Scale, baseline: float | None = None) -> dict[str, Any]:
    """Estimate columns of the mean over seeds, from each seed's estimate on the same examples.

    The interval is over seeds and examples, see `interval_over_seeds`; with one seed, it is the interval of that seed.
    """
    value = float(np.mean([row["value"] for row in rows]))
    replicates = np.mean([np.asarray(row["replicates"], dtype=np.float64) for row in rows], axis=0)
    control = float(np.mean([row["baseline"] for row in rows])) if baseline is None else baseline
    count = int(rows[0]["count"])
    if len(rows) == 1:
        return estimate(value, replicates, control, count, ends=Interval(rows[0]["low"], rows[0]["high"]))
    values, drawn = np.array([row["value"] for row in rows]), np.array([row["replicates"] for row in rows], dtype=float)
    units, own = [(seed,) for seed in range(len(rows))], [(row["low"], row["high"]) for row in rows]
    usable = drawn[:, np.isfinite(drawn).all(axis=0)]
    return estimate(value, replicates, control, count, ends=interval_over_seeds(units, values, usable, own, scale))


def tuned_table(schema: TableSchema, rows: Sequence[Mapping[str, Any]] | pd.DataFrame) -> pd.DataFrame:
    """Rows of a schema without the columns that describe the tuning, which the caller of a measure adds."""
    tuned = {column.name for column in TUNED}
    columns = tuple(column for column in schema.columns if column.name not in tuned)
    schema = schema.named(schema.name, schema.description, columns)
    frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(rows, columns=schema.column_names)
    return schema.conform(frame)
