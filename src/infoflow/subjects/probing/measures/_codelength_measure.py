"""How hard a task is to read from each layer, in bits."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from infoflow.flow import Intervention, PassOptions, Reader
from infoflow.foundation import Scale, UserError, block_sums, current_display, stream
from infoflow.representations import Schedule
from infoflow.results import Column, TableSchema, estimate_columns

from ._codelength import DescriptionLength
from ._codelength_codes import VariationalTraining, online_codelength, variational_codelength
from ._features import LayerInputs, Scaling
from ._probe_scores import SEED_COLUMNS, replicated, seed_estimate
from ._probed_task import PARTS, ProbedTask, TaskChoice, control_labels, example_types, probed_task

CODES = ("online", "variational")
LABELS = ("task", "control", "shuffled")
_RATES = {"online": 1e-3, "variational": 1e-2}
_EPOCHS = {"online": 50, "variational": 100}

PROBE_CODELENGTH = TableSchema(
    name="probe_codelength",
    version=2,
    description="Description length of a task's labels given a layer's states, in bits: probe and labels together.",
    columns=(
        Column("task", "string", "", "what is read from the states"),
        Column("unit", "string", "", "what is labelled: token, span, pair or sentence"),
        Column("probe", "string", "", "linear, or mlp with the sizes of its hidden layers"),
        Column("stack", "string", "", "the stack that reads the text"),
        Column("layer", "int64", "", "state 0..L; 0 = embeddings"),
        Column(
            "labels",
            "string",
            "",
            "task; control: each word type has one random label; shuffled: the task's labels in random "
            "order, which no code can compress beyond what their frequencies allow",
        ),
        Column("code", "string", "", "online or variational"),
        Column(
            "metric",
            "string",
            "",
            "bits: of the whole code; compression: uniform code divided by whole code; model_bits, data_bits: the "
            "parts; accuracy: on the test part; surviving: inputs that a variational probe keeps",
        ),
        Column("probe_layer", "int64", "", "for surviving inputs, the linear layer of the probe, from 0; else -1"),
        Column("training", "int64", "targets", "number of labels that are coded"),
        Column("capacity", "int64", "parameters", "of one probe"),
        Column("units", "string", "", "bits; mixed: natural added to binary logarithms, as in the reference's code"),
        *estimate_columns(
            "bits; ratio (compression), share (accuracy), inputs (surviving)",
            "see metric; bits grow with the number of labels coded",
            "bits, model_bits and data_bits: the uniform code; compression: 1; accuracy: the most frequent training "
            "label; surviving: all inputs",
            "number of labels coded; for accuracy, number of labels in the test part",
        ),
        *SEED_COLUMNS,
    ),
)


class Codelength(Intervention):
    r"""Minimum description length of labels at every layer: of the task, of its control, and of shuffled labels.

    $$ \text{compression} = \frac{N \log_2 K}{L_\text{model} + L_\text{data}} $$

    See `online_codelength` and `variational_codelength`. All layers and seeds of a label set train as one batched
    problem. Features are standardised over the training part, layer by layer, so that layers with large states have no
    advantage; a span is the mean of its words. Intervals cover the choice of sentences and the seeds of the probe.

    With the defaults at most 4,000 training labels are coded, in at most 11 prefixes with 8,000 labels in total and 50
    epochs (online: 7,000 steps), or 100 epochs (variational: 6,300 steps).

    Args:
        task: One of `tasks()`, or a tag column of the corpus; if the corpus lacks its columns, the table is empty.
        code: `"online"` or `"variational"`.
        hidden: Sizes of the probe's hidden layers; none: a linear probe. The reference uses (1000, 1000).
        seeds: Number of probes, with consecutive seeds from `seed` on.
        sentences: Maximum number from the corpus, chosen by hash.
        examples: Maximum number of labels in each of the parts for training, early stopping and scoring.
        batch: Labels per step.
        rate: Adam's learning rate; 0: 0.001 for the online code as in the reference, 0.01 for the variational one,
            whose log variances have to move by 9.
        epochs: Maximum number of epochs; 0: 50 for the online code, 100 for the variational one (the reference uses
            200).
        threshold: In nats. An input of a variational probe survives if its log α is below the threshold; see
            `variational_codelength`.
        seed: Seeds the choice of sentences, the control's random labels, the shuffled order and the probes.
        legacy_units: Add natural logarithms to bits, as the reference's code does; the column `units` then says so.

    Source: [@voita2020]; control tasks: [@hewitt2019control].
    """

    table: ClassVar[TableSchema] = PROBE_CODELENGTH

    def __init__(
        self,
        task: str = "upos",
        code: str = "online",
        hidden: tuple[int, ...] = (64, 64),
        seeds: int = 3,
        sentences: int = 2000,
        examples: int = 4000,
        batch: int = 64,
        rate: float = 0.0,
        epochs: int = 0,
        threshold: float = 0.0,
        seed: int = 0,
        legacy_units: bool = False,
    ) -> None:
        if code not in CODES:
            raise UserError(f"code must be online or variational. Got {code}.")
        if seeds < 1 or batch < 1 or rate < 0 or epochs < 0 or any(size < 1 for size in hidden):
            raise UserError(
                "seeds, batch and hidden sizes must be at least 1, rate and epochs at least 0 (0: as the code needs). "
                f"Got {seeds}, {batch}, {list(hidden)}, {rate} and {epochs}."
            )
        TaskChoice(name=task, sentences=sentences, examples=examples, seed=seed)
        self.task, self.code, self.hidden, self.seeds = task, code, tuple(hidden), seeds
        self.sentences, self.examples, self.batch = sentences, examples, batch
        self.rate, self.epochs = rate or _RATES[code], epochs or _EPOCHS[code]
        self.threshold, self.seed, self.legacy_units = threshold, seed, legacy_units

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        choice = TaskChoice(name=self.task, sentences=self.sentences, examples=self.examples, seed=self.seed)
        probed = probed_task(choice, reader, options, held=options.sample_bytes)
        if probed is None:
            return pd.DataFrame(columns=self.table.column_names)
        inputs = scaled_inputs(probed)
        rows = []
        with current_display().progress(f"Coding {self.task}", len(LABELS), "sets of labels") as progress:
            for kind in LABELS:
                labels = self._labels(kind, probed)
                found = self._coded(inputs, labels, len(probed.task.names), probed.examples("train").sentence)
                rows += self._rows(kind, probed, labels, found, inputs["train"].shape[2])
                progress.advance(1)
        return pd.DataFrame(rows, columns=self.table.column_names)

    def _labels(self, kind: str, probed: ProbedTask) -> Mapping[str, np.ndarray]:
        own = {name: probed.examples(name).label for name in PARTS}
        if kind == "control":
            return control_labels(example_types(probed.task), own, len(probed.task.names), self.seed).of
        if kind == "shuffled":
            return {name: stream("shuffled-labels", self.seed, name).permutation(each) for name, each in own.items()}
        return own

    def _coded(
        self, inputs: Mapping[str, np.ndarray], labels: Mapping[str, np.ndarray], classes: int, groups: np.ndarray
    ) -> DescriptionLength:
        seeds = list(range(self.seed, self.seed + self.seeds))
        given = {"hidden": self.hidden, "legacy_units": self.legacy_units, "test": (inputs["test"], labels["test"])}
        if self.code == "online":
            return online_codelength(
                inputs["train"],
                labels["train"],
                classes,
                seeds,
                groups=groups,
                dev=(inputs["dev"], labels["dev"]),
                batch=self.batch,
                schedule=Schedule(rate=self.rate, epochs=self.epochs),
                shuffle_seed=self.seed,
                **given,
            )
        training = VariationalTraining(rate=self.rate, epochs=self.epochs, batch=self.batch)
        return variational_codelength(
            inputs["train"], labels["train"], classes, seeds, training=training, threshold=self.threshold, **given
        )

    def _rows(
        self, kind: str, probed: ProbedTask, labels: Mapping[str, np.ndarray], found: DescriptionLength, width: int
    ) -> list[dict[str, Any]]:
        classes = len(probed.task.names)
        key = {
            "task": self.task,
            "unit": probed.task.unit,
            "probe": "-".join(["mlp", *map(str, self.hidden)]) if self.hidden else "linear",
            "stack": probed.stack,
            "labels": kind,
            "code": self.code,
            "training": found.targets,
            "capacity": self._capacity(width, classes),
            "units": found.units,
        }
        majority = np.bincount(labels["train"], minlength=classes).argmax()
        metrics = code_metrics(found, probed.blocks("train"))
        metrics["accuracy"] = accuracy_metric(found, probed.blocks("test"), float((labels["test"] == majority).mean()))
        rows = []
        for metric, (values_SL, replicates_RSL, baseline, count) in metrics.items():
            for layer in range(values_SL.shape[1]):
                drawn = replicates_RSL[:, :, layer].T
                numbers = seed_estimate(values_SL[:, layer], drawn, baseline, count, _SCALES.get(metric, "positive"))
                rows.append(key | {"layer": layer, "metric": metric, "probe_layer": -1, **numbers})
        return rows + (self._surviving(key, found, width) if found.surviving is not None else [])

    def _surviving(self, key: dict[str, Any], found: DescriptionLength, width: int) -> list[dict[str, Any]]:
        rows = []
        for index, size in enumerate((width, *self.hidden)):
            for layer in range(found.surviving.shape[1]):
                kept = found.surviving[:, layer, index].astype(np.float64)
                numbers = seed_estimate(kept, np.repeat(kept[:, None], 200, axis=1), size, found.targets, "positive")
                rows.append(key | {"layer": layer, "metric": "surviving", "probe_layer": index, **numbers})
        return rows

    def _capacity(self, width: int, classes: int) -> int:
        """Number of parameters; in a variational probe each weight, bias and gate has a mean and a variance."""
        sizes: Sequence[int] = (width, *self.hidden, classes)
        plain = sum((given + 1) * out for given, out in pairwise(sizes))
        return plain if self.code == "online" else 2 * (plain + sum(sizes[:-1]))


def scaled_inputs(probed: ProbedTask) -> dict[str, np.ndarray]:
    """Features (examples, layers, width) of each part, standardised over the training part."""
    rows = {name: LayerInputs(probed.features[name], probed.examples(name)) for name in PARTS}
    scaling = Scaling.of(rows["train"])
    return {name: (each[np.arange(each.shape[0])] - scaling.mean) / scaling.spread for name, each in rows.items()}


_SCALES: dict[str, Scale] = {"accuracy": "share"}  # nothing else has an upper bound
Metric = tuple[np.ndarray, np.ndarray, float, int]
"""Values (seeds, layers), replicates (replicates, seeds, layers), baseline, count."""


def code_metrics(found: DescriptionLength, blocks: np.ndarray) -> dict[str, Metric]:
    """Bits, their parts and compression. Replicates resample sentences, and are scaled to the number of labels."""
    num = found.targets
    counts = block_sums(np.ones(len(blocks)), blocks)
    with np.errstate(invalid="ignore", divide="ignore"):  # a replicate of few sentences may draw none
        scale = num / replicated(counts)[:, None, None]
        data = replicated(block_sums(found.target_data_bits.astype(np.float64), blocks)) * scale
        coded = replicated(block_sums(found.target_bits.astype(np.float64), blocks)) * scale
        bits = coded if len(found.blocks) else data + found.model_bits
        compression = found.uniform_bits / bits
    uniform = found.uniform_bits
    return {
        "bits": (found.bits, bits, uniform, num),
        "compression": (found.compression, compression, 1.0, num),
        "model_bits": (found.model_bits, bits - data, uniform, num),
        "data_bits": (found.data_bits, data, uniform, num),
    }


def accuracy_metric(found: DescriptionLength, blocks: np.ndarray, majority: float) -> Metric:
    """Accuracy on the test part."""
    assert found.test_right is not None
    right = replicated(block_sums(found.test_right.astype(np.float64), blocks))
    counted = replicated(block_sums(np.ones(len(blocks)), blocks))
    with np.errstate(invalid="ignore", divide="ignore"):
        return found.accuracy, right / counted[:, None, None], majority, len(blocks)
