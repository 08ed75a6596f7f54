"""The depth at which a task is solved: mixing weights and scores of edge probes on layers 0..l, for each l."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from jaxtyping import Float

from infoflow.flow import Intervention, PassOptions, Reader, describe_measure
from infoflow.foundation import Scale, block_sums, digest
from infoflow.representations import Schedule
from infoflow.results import Column, TableSchema, estimate_columns

from ._depth_statistics import (
    center_of_gravity,
    contextual_headroom,
    depth_warnings,
    differential_scores,
    expected_layer,
    kl_from_uniform,
    kl_of_differences,
    mixing_entropy,
    negative_mass,
)
from ._edge_probe import EdgeSettings, Spans, edge_probe
from ._probe_scores import SEED_COLUMNS, f1_counts, replicated, seed_estimate, with_still_sides
from ._probed_task import ProbedTask, TaskChoice, probed_task

_GAIN: Scale = (-1.0, 1.0)  # range of a difference of two F1 scores
_LEAST_GAIN = 0.02  # two points of F1, which is from 0 to 1

_KEYS = (
    Column("task", "string", "", "what is read from the states"),
    Column("unit", "string", "", "what is labelled: token, span, pair or sentence"),
    Column("stack", "string", "", "the stack that reads the text"),
)
_SIZES = (
    Column("training", "int64", "examples", "number of examples that the probes are trained on"),
    Column("capacity", "int64", "parameters", "of one probe"),
)

PROBE_MIXING = TableSchema(
    name="probe_mixing",
    version=3,
    description="Edge probes on a learned mix of layers: the weight of each layer, and what it adds to the score.",
    columns=(
        *_KEYS,
        Column("layer", "int64", "", "state 0..L; 0 = embeddings"),
        Column(
            "statistic",
            "string",
            "",
            "weight: the layer's weight in the mix of the probe that sees all layers; score: micro-F1 of the probe "
            "that sees the layers up to this one; delta: score minus that of the layer below (from 1 on); fraction: "
            "delta as a share of the headroom, which is the best score minus that of layer 0",
        ),
        *_SIZES,
        *estimate_columns(
            "share (weight, fraction), F1 from 0 to 1 (score, delta)",
            "see statistic",
            "weight: 1 / (L + 1); score: the most frequent label for all; delta, fraction: 0",
            "test examples",
        ),
        *SEED_COLUMNS,
    ),
)

PROBE_DEPTH = TableSchema(
    name="probe_depth",
    version=2,
    description="At which depth a task is solved, by edge probes on a learned mix of layers.",
    columns=(
        *_KEYS,
        Column(
            "statistic",
            "string",
            "",
            "expected_layer; expected_layer_running_maximum (from the highest score so far); "
            "center_of_gravity and center_of_gravity_oneplus (without layer 0) of the mix; k_weights and "
            "entropy_weights of the mix; k_differences; headroom; negative_mass",
        ),
        *_SIZES,
        *estimate_columns(
            "layers (expected layer, center of gravity), bits (k, entropy), F1 from 0 to 1 (headroom), share (mass)",
            "see statistic",
            "equal weights, or equal gains of all layers; headroom, negative_mass: 0",
            "test examples",
        ),
        *SEED_COLUMNS,
        Column(
            "warning",
            "string",
            "",
            "why the expected layer is unstable (gain below 2 points of F1, or over 20% of all change is "
            "loss), so that the running maximum should be read; empty if it is stable",
        ),
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class EdgeOutcome:
    """Results of a task's cumulative probes."""

    key: dict[str, Any]
    weights: Float[np.ndarray, "seed state"]  # mixing weights of the probes that see all layers
    scores: Float[np.ndarray, "seed state"]
    replicates: Float[np.ndarray, "replicate seed state"]
    majority: float
    count: int

    def row(
        self,
        values: np.ndarray,
        replicates: np.ndarray,
        baseline: float,
        scale: Scale = "any",
        independent: float | None = None,
    ) -> dict[str, Any]:
        """A row from values (seeds,) and their replicates (replicates, seeds)."""
        drawn = np.ascontiguousarray(replicates.T)
        return self.key | seed_estimate(values, drawn, baseline, self.count, scale, independent)

    def fixed(self, values: np.ndarray, baseline: float, scale: Scale = "any") -> dict[str, Any]:
        """A row for values that do not depend on the test sentences."""
        drawn = np.repeat(values[None], len(self.replicates), axis=0)
        return self.row(values, drawn, baseline, scale, independent=math.inf)  # exact: not computed from sentences


_Statistic = tuple[Callable[..., Any], float, Scale]  # the statistic, its baseline, its range

_TRAINED: "WeakKeyDictionary[Reader, dict[str, EdgeOutcome | None]]" = WeakKeyDictionary()
"""Both measures share one training, whose results are freed with the reader."""


class AbstractEdgeMeasure(Intervention):
    """Edge probes of a task, cumulative over layers.

    For every layer l and seed there is one probe whose mix sees layers 0..l; all are trained together (see
    `edge_probe`). `EdgeProbe` and `EdgeDepth` with the same settings share the training. With the defaults at most
    2,000 examples train for at most 20 epochs of 63 steps; the reference trains for 10,000 to 250,000 steps.

    Args:
        task: One of `tasks()`, or a tag column of the corpus; if the corpus lacks its columns, the table is empty.
        output: `"softmax"` for one label per example, or `"sigmoid"` for a separate yes or no for each label.
        seeds: Number of training runs, with consecutive seeds from `seed` on.
        sentences: Maximum number from the corpus, chosen by hash.
        examples: Maximum number in each of the parts for training, early stopping and scoring.
        width: Width of projected words.
        hidden: Units of the hidden layer.
        dropout: Dropout on the hidden layer's output.
        batch: Examples per step.
        rate: Adam's learning rate.
        mix_speed: Factor on the learning rate of the scalar mix, so that few steps suffice to separate layers.
        epochs: Maximum number of epochs.
        seed: Seeds the choice of sentences, the parts and the probes.

    Source: [@tenney2019], [@tenney2019edge], jiant v1.
    """

    def __init__(
        self,
        task: str = "upos",
        output: str = "softmax",
        seeds: int = 3,
        sentences: int = 2000,
        examples: int = 2000,
        width: int = 256,
        hidden: int = 256,
        dropout: float = 0.3,
        batch: int = 32,
        rate: float = 1e-3,
        mix_speed: float = 10.0,
        epochs: int = 20,
        seed: int = 0,
    ) -> None:
        self.task, self.output, self.seeds, self.sentences, self.examples = task, output, seeds, sentences, examples
        self.width, self.hidden, self.dropout, self.batch = width, hidden, dropout, batch
        self.rate, self.mix_speed, self.epochs, self.seed = rate, mix_speed, epochs, seed
        self._settings = EdgeSettings(
            width=width,
            hidden=hidden,
            dropout=dropout,
            output=output,
            batch=batch,
            mix_speed=mix_speed,
            schedule=Schedule(rate=rate, epochs=epochs),
        )
        self._choice = TaskChoice(name=task, sentences=sentences, examples=examples, seed=seed)

    def outcome(self, reader: Reader, options: PassOptions) -> EdgeOutcome | None:
        """The results of training, computed once per reader and settings; None if the corpus lacks the columns."""
        settings = {name: value for name, value in describe_measure(self).items() if name not in ("measure", "version")}
        key = digest([settings, options.key])
        known = _TRAINED.setdefault(reader, {})
        if key not in known:
            probed = probed_task(self._choice, reader, options)
            known[key] = None if probed is None else self._trained(probed, reader)
        return known[key]

    def _trained(self, probed: ProbedTask, reader: Reader) -> EdgeOutcome:
        classes = len(probed.task.names)
        parts = {name: self._spans(probed, name, classes) for name in ("train", "dev", "test")}
        seeds = list(range(self.seed, self.seed + self.seeds))
        found = edge_probe(**parts, classes=classes, seed=seeds, settings=self._settings, device=reader.model.device)
        ignored = [index for index, name in enumerate(probed.task.names) if name in probed.task.ignored]
        blocks, gold = probed.blocks("test"), parts["test"].labels
        hits, named = (
            block_sums(np.moveaxis(each, 2, 0), blocks) for each in f1_counts(found.predicted, gold, ignored)
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            scores, replicates = 2 * hits.sum(0) / named.sum(0), 2 * replicated(hits) / replicated(named)
        train = probed.examples("train").label
        frequent = np.bincount(train[~np.isin(train, ignored)], minlength=classes).argmax()
        right = probed.examples("test").label == frequent
        counted = 2 * right.sum() / (len(right) + (~np.isin(probed.examples("test").label, ignored)).sum())
        return EdgeOutcome(
            key={
                "task": self.task,
                "unit": probed.task.unit,
                "stack": probed.stack,
                "training": len(parts["train"]),
                "capacity": found.capacity,
            },
            weights=found.weights[:, -1].astype(np.float64),
            scores=scores,
            replicates=replicates,
            majority=float(counted),
            count=len(gold),
        )

    def _spans(self, probed: ProbedTask, part: str, classes: int) -> Spans:
        examples, features = probed.examples(part), probed.features[part]
        spans = [
            None if each is None else np.stack(features.spans(examples.sentence, each), axis=1)
            for each in (examples.first, examples.second)
        ]
        labels = examples.label if self.output == "softmax" else np.eye(classes, dtype=bool)[examples.label]
        assert spans[0] is not None
        return Spans(states=features.states, first=spans[0], second=spans[1], labels=labels)


class EdgeProbe(AbstractEdgeMeasure):
    """Mixing weights, cumulative scores and their differences, layer by layer; see `edge_probe`.

    Arguments are those of `AbstractEdgeMeasure`.

    Source: [@tenney2019].
    """

    table: ClassVar[TableSchema] = PROBE_MIXING

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        found = self.outcome(reader, options)
        rows = [] if found is None else mixing_rows(found)
        return pd.DataFrame(rows, columns=self.table.column_names)


class EdgeDepth(AbstractEdgeMeasure):
    """Expected layer, centre of gravity and related statistics; see `expected_layer`.

    Arguments are those of `AbstractEdgeMeasure`.

    Source: [@tenney2019].
    """

    table: ClassVar[TableSchema] = PROBE_DEPTH

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        found = self.outcome(reader, options)
        rows = [] if found is None else depth_rows(found)
        return pd.DataFrame(rows, columns=self.table.column_names)


def mixing_rows(found: EdgeOutcome) -> list[dict[str, Any]]:
    """The rows for single layers."""
    states = found.scores.shape[1]
    deltas, delta_replicates = (differential_scores(each) for each in (found.scores, found.replicates))
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = deltas / _above_zero(contextual_headroom(found.scores))[:, None]
        share_replicates = delta_replicates / _above_zero(contextual_headroom(found.replicates))[..., None]
    scores = [
        found.row(found.scores[:, layer], found.replicates[..., layer], found.majority, "share")
        for layer in range(states)
    ]
    rows = []
    for layer in range(states):
        of_layer = {"weight": found.fixed(found.weights[:, layer], 1 / states, "share"), "score": scores[layer]}
        if layer:
            of_layer["delta"] = with_still_sides(
                found.row(deltas[:, layer - 1], delta_replicates[..., layer - 1], 0.0, _GAIN),
                scores[layer],
                scores[layer - 1],
                [found.replicates[..., at].T for at in (layer, layer - 1)],
            )
            of_layer["fraction"] = found.row(shares[:, layer - 1], share_replicates[..., layer - 1], 0.0)
        rows += [{"layer": layer, "statistic": name, **row} for name, row in of_layer.items()]
    return rows


def _above_zero(values: np.ndarray) -> np.ndarray:
    return np.where(values > 0, values, np.nan)


def depth_rows(found: EdgeOutcome) -> list[dict[str, Any]]:
    """The rows for the whole stack."""
    top = found.scores.shape[1] - 1
    layers = (0.0, float(top))
    of_scores: dict[str, _Statistic] = {
        "expected_layer": (expected_layer, (top + 1) / 2, "any"),
        "expected_layer_running_maximum": (
            partial(expected_layer, running_maximum=True),
            (top + 1) / 2,
            (1.0, float(top)),
        ),
        "k_differences": (kl_of_differences, 0.0, "positive"),
        "headroom": (contextual_headroom, 0.0, "positive"),
        "negative_mass": (negative_mass, 0.0, "share"),
    }
    of_weights: dict[str, _Statistic] = {
        "center_of_gravity": (center_of_gravity, top / 2, layers),
        "center_of_gravity_oneplus": (partial(center_of_gravity, layers="oneplus"), (top + 1) / 2, layers),
        "k_weights": (kl_from_uniform, 0.0, "positive"),
        "entropy_weights": (mixing_entropy, float(np.log2(top + 1)), "positive"),
    }
    warning = depth_warnings(found.scores.mean(0), least_gain=_LEAST_GAIN)
    rows = {name: found.row(f(found.scores), f(found.replicates), *rest) for name, (f, *rest) in of_scores.items()}
    rows |= {name: found.fixed(f(found.weights), *rest) for name, (f, *rest) in of_weights.items()}
    return [{"statistic": name, "warning": warning, **row} for name, row in rows.items()]
