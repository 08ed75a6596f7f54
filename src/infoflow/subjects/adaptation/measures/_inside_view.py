"""All measurements inside a model before and after tuning."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import pandas as pd

from infoflow.corpus import Corpus
from infoflow.flow import Failures, PassOptions
from infoflow.foundation import Count, UserError, as_written, check_settings, current_display
from infoflow.models import AbstractOwnModel, Model

from ._body import began_as
from ._label_by_layer import askable, label_by_layer, no_labels, probes_after_tuning
from ._layers_after_tuning import layer_swaps, no_pretraining_loss, tuning_change, tuning_weights
from ._states import Places
from ._tables import (
    LABEL_BY_LAYER,
    LAYER_SWAPS,
    PROBES_AFTER_TUNING,
    TASK_PRUNING,
    TUNING_CHANGE,
    TUNING_HEADS,
    TUNING_WEIGHTS,
)
from ._task import AbstractTask, TaskData
from ._task_parts import TaskPart
from ._task_pruning import task_pruning
from ._tuning_heads import tuning_heads


@dataclass(frozen=True, kw_only=True, slots=True)
class InsideSizes:
    """Amount of data for each measure; more data narrows intervals and takes longer."""

    words: Count = 3000  # text tokens for distances of spaces and information about words
    items: Count = 600  # number of these words for RSA
    label_texts: Count = 400  # texts of each part for probing the label
    scored: Count = 150  # test examples scored with layers reset or heads ablated
    written: Count = 24  # the same, if an example is a text to generate
    swap_points: Count = 3  # different numbers of reset blocks to try, between none and all
    attention_texts: Count = 200  # test examples for attention
    costs_on: Count = 128  # test examples for each head's cost, dev examples for the order of heads
    pretraining_sentences: Count = 64
    random_orders: Count = 1  # random orders of heads for each tuned model
    probe_sentences: Count = 200

    def __post_init__(self) -> None:
        check_settings(self, "inside")


INSIDE_TABLES = {
    schema.name: schema
    for schema in (
        TUNING_CHANGE,
        TUNING_WEIGHTS,
        TUNING_HEADS,
        LABEL_BY_LAYER,
        PROBES_AFTER_TUNING,
        LAYER_SWAPS,
        TASK_PRUNING,
    )
}
"""The tables of `inside_view`, by name."""
INSIDE = tuple(INSIDE_TABLES)  # names of the tables of `inside_view`


def inside_view(
    before: Model,
    after: Sequence[Model],
    task: AbstractTask,
    data: TaskData,
    *,
    untrained: Model | None = None,
    pretraining: Corpus | None = None,
    tagged: Corpus | None = None,
    options: PassOptions | None = None,
    sizes: InsideSizes | None = None,
    seeds: Sequence[int] | None = None,
    only: Sequence[str] | None = None,
) -> dict[str, pd.DataFrame]:
    """What tuning changed inside a model: the tables `INSIDE` by name (or `only` some), without the columns of `TUNED`.

    `before` has its language-model head if there is one; `after` are models tuned from it on one task, with several
    `seeds` (default: 0, 1, ...). `pretraining` is text for the pretraining loss, `tagged` an annotated corpus for
    linguistic probes; `options.corruption` is the noise of the pretraining objective. A measure that does not apply is
    skipped with a note; one that fails is left out with a warning and does not affect the others.
    """
    if unknown := [name for name in only or () if name not in INSIDE]:
        raise UserError(f"only must name tables of the inside view: {', '.join(INSIDE)}. Got {as_written(unknown[0])}.")
    if not after:
        raise UserError("The inside view compares a model with models tuned from it. Got no tuned model.")
    view = _View(
        whole=before,
        before=began_as(before, after),
        after=tuple(after),
        task=task,
        data=data,
        untrained=None if untrained is None else began_as(untrained, after),
        pretraining=pretraining,
        tagged=tagged,
        options=options or PassOptions(),
        sizes=sizes or InsideSizes(),
        seeds=None if seeds is None else tuple(seeds),
    )
    if pretraining is not None and (reason := no_pretraining_loss(before, pretraining, view.options.corruption)):
        current_display().note(f"What {before.name} forgets of its pretraining is not measured: {reason}.")
    parts = [part for part in view.parts() if only is None or part.name in only]
    failures, tables = Failures(before.name, keep_going=len(parts) > 1), {}
    label = f"Comparing {before.name} before and after tuning"
    with current_display().progress(label, len(parts)) as progress:
        for part in parts:
            progress.advance(0, now=part.name)
            if part.why_not:
                current_display().note(f"{part.name} of {before.name} is skipped: {part.why_not}.")
            else:
                with failures.of(part):
                    tables[part.name] = part.compute()
            progress.advance(1)
    return tables


class _Part(NamedTuple):
    name: str
    why_not: str | None
    compute: Callable[[], pd.DataFrame]


@dataclass(frozen=True, kw_only=True, eq=False)
class _View:
    """The inputs of the measures; states are computed once and shared."""

    whole: Model  # the pretrained model with its head; `before` may be a part of it
    before: Model
    after: tuple[Model, ...]
    task: AbstractTask
    data: TaskData
    untrained: Model | None
    pretraining: Corpus | None
    tagged: Corpus | None
    options: PassOptions
    sizes: InsideSizes
    seeds: tuple[int, ...] | None

    def parts(self) -> list[_Part]:
        """Each table with the reason why it cannot be made (None if it can), and the function that makes it."""
        sizes, data, read = self.sizes, self.data, (self.task, self.data, self.options)
        no_blocks = self._no_blocks
        no_heads = no_blocks or self.before.anatomy.lacks()
        corpus = data.train if self.tagged is None else self.tagged
        no_probe = None if askable(corpus) else f"none of its probes applies to {corpus.name}"
        text: dict[str, Any] = {"pretraining": self.pretraining, "sentences": sizes.pretraining_sentences}
        both = self.whole, self.after
        few = {"texts": sizes.attention_texts, "costs_on": sizes.costs_on}
        heads = partial(tuning_heads, *both, self.task, data.test, self.options, **few, **text)
        words = {"tagged": self.tagged, "sentences": sizes.probe_sentences}
        probes = partial(probes_after_tuning, self.before, self.after, data.train, self.options, **words)
        swaps = partial(layer_swaps, *both, *read, examples=self._scored, points=sizes.swap_points, **text)
        order = {"draws": sizes.random_orders, "ranked_on": sizes.costs_on}
        pruning = partial(task_pruning, self.after, *read, examples=self._scored, **order)
        return [
            _Part(TUNING_CHANGE.name, no_blocks, self._change),
            _Part(TUNING_WEIGHTS.name, None, partial(tuning_weights, self.before, self.after, self.seeds)),
            _Part(TUNING_HEADS.name, no_heads, heads),
            _Part(LABEL_BY_LAYER.name, no_blocks or no_labels(self.task), self._labels),
            _Part(PROBES_AFTER_TUNING.name, no_blocks or no_probe, probes),
            _Part(LAYER_SWAPS.name, no_blocks, swaps),
            _Part(TASK_PRUNING.name, no_heads, pruning),
        ]

    @property
    def _no_blocks(self) -> str | None:
        """Why there are no layers to measure, or None."""
        if isinstance(self.before.module, AbstractOwnModel):
            return f"a {type(self.before.module).__name__} needs its own code"
        layers = any(stack.layers for stack in self.before.anatomy.stacks)
        return None if layers else self.before.anatomy.lacks()

    @property
    def _scored(self) -> int:
        sizes = self.sizes
        return min(sizes.scored, sizes.written) if self.task.shape == "generation" else sizes.scored

    @cached_property
    def _places(self) -> dict[str, Places]:
        """The token positions to read in each part; without labels to probe, only those of the test part."""
        few = None if no_labels(self.task) else self.sizes.label_texts
        parts = {"train": self.data.train, "dev": self.data.dev, "test": self.data.test}
        return {
            name: Places(TaskPart(self.task, corpus, self.before, self.options, most=few), self.sizes.words)
            for name, corpus in parts.items()
            if few is not None or name == "test"
        }

    def _change(self) -> pd.DataFrame:
        return tuning_change(self._places["test"], self.before, self.after, self.sizes.items)

    def _labels(self) -> pd.DataFrame:
        models = {"before": [self.before], "after": self.after}
        if self.untrained is not None:
            models["untrained"] = [self.untrained]
        return label_by_layer(self._places, models, self.sizes.words)
