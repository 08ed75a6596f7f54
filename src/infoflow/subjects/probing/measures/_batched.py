"""Linear probes and probes with one hidden layer: all layers, seeds and label sets of a task trained as one problem."""

# P probe, B batch, E width of an input, H hidden unit, C class, R set of labels, N example, O order of examples

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional

from infoflow.foundation import UserError, hash64, require_memory, stream
from infoflow.representations import first_choice

from ._features import InputRows, ProbeInputs, Scaling

NO_ANSWER = -1  # the label of an example that a label set does not cover
_LEAST_STEPS = 32  # steps between two evaluations on the dev part; several passes if there are few examples
_GROUP = 1 << 30  # bytes of parameters, their optimiser's state and activations that train together
_PART = 1 << 26  # bytes of activations held at a time when probes only predict
Parameters = dict[str, Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeSettings:
    """How a probe is trained, and its capacity.

    The defaults are those of the source. If probes train together, larger batches are no faster, as they need as many
    operations and more epochs (benchmarks/probing.py).

    Source: [@liu2019linguistic], the authors' code; [@hewitt2019control] for the settings of capacity.
    """

    hidden: int = 0  # units of one hidden layer of rectified linear units; 0: a linear probe
    dropout: float = 0.0  # of the last layer's input
    weight_decay: float = 0.0  # of Adam: half the sum of squares of the weights, times this, is added to the loss
    rate: float = 1e-3
    batch: int = 80  # examples
    epochs: int = 50  # maximum; an epoch is a pass over the training examples, but at least 32 steps
    patience: int = 3  # epochs without a better accuracy on the dev part, after which a probe stops

    def __post_init__(self) -> None:
        if self.hidden < 0 or self.batch < 1 or self.epochs < 1 or self.patience < 1 or self.rate <= 0:
            raise UserError(
                "A probe's hidden units must be at least 0, batch, epochs and patience at least 1, its rate above 0. "
                f"Got {self.hidden}, {self.batch}, {self.epochs}, {self.patience} and {self.rate}."
            )
        if not 0 <= self.dropout < 1 or self.weight_decay < 0:
            raise UserError(
                "A probe's dropout must lie in [0, 1), its weight decay be at least 0. "
                f"Got {self.dropout} and {self.weight_decay}."
            )

    def capacity(self, width: int, classes: int) -> int:
        """Number of parameters of one probe."""
        if not self.hidden:
            return (width + 1) * classes
        return (width + 1) * self.hidden + (self.hidden + 1) * classes


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ProbeGrid:
    """The probes that train together: the layer, seed and label set of each."""

    layer: Int[np.ndarray, " probe"]
    seed: Int[np.ndarray, " probe"]
    labels: Int[np.ndarray, " probe"]

    def __len__(self) -> int:
        return len(self.layer)

    def part(self, index: Int[np.ndarray, " chosen"]) -> "ProbeGrid":
        return ProbeGrid(layer=self.layer[index], seed=self.seed[index], labels=self.labels[index])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LabelledRows:
    """Inputs of examples in all layers, and their labels in each set: 0..C−1, or `NO_ANSWER`."""

    rows: InputRows
    labels: Int[np.ndarray, "set example"]

    def __post_init__(self) -> None:
        assert self.labels.shape[1] == self.rows.shape[0], "one column of labels per example"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TrainedProbes:
    """Probes with the weights that scored best on the development part."""

    grid: ProbeGrid
    settings: ProbeSettings
    scaling: Scaling
    parameters: dict[str, Shaped[Tensor, "probe *weight"]]
    """`hidden` (E, H) and `hidden_bias` (if there is a hidden layer), `output` (E or H, C) and `output_bias`."""
    epochs: Int[np.ndarray, " probe"]  # number of epochs that each probe trained for
    dev_accuracy: Float[np.ndarray, " probe"]

    def predict(self, rows: InputRows) -> Int[np.ndarray, "probe example"]:
        """The most likely class of each example, by each probe."""
        device = self.parameters["output"].device
        inputs = ProbeInputs(rows, self.scaling, device, held=0)
        layer = torch.from_numpy(self.grid.layer).to(device)
        with torch.inference_mode():
            parts = [part.argmax(-1).cpu() for part in _all_logits(self.parameters, inputs, layer)]
        return torch.cat(parts, dim=1).numpy()


def train_probes(
    train: LabelledRows,
    dev: LabelledRows,
    grid: ProbeGrid,
    classes: Int[np.ndarray, " set"],
    settings: ProbeSettings,
    device: torch.device | None = None,
) -> TrainedProbes:
    """Train all probes of the grid at once, with the same results as if each were trained alone.

    Only the seed determines a probe's initial weights, the order of its examples and its dropout, so layers and label
    sets are compared on equal terms. Inputs are standardised to mean 0 and standard deviation 1 over the training
    examples, for each layer and dimension. This changes how fast a probe learns, but not what it can express. A probe
    stops when its dev accuracy has not risen for `settings.patience` epochs (ties are broken by the lower loss); it
    keeps its best weights, and the others continue.

    Args:
        train: Training examples.
        dev: Examples for early stopping.
        grid: Layers, seeds and sets of labels.
        classes: Number of classes of each set; further outputs are masked.
        settings: Capacity and training.
        device: Where to train; default: the CPU.

    Raises:
        UserError: A single probe does not fit into memory.
    """
    device = device or torch.device("cpu")
    scaling = Scaling.of(train.rows)
    inputs = [ProbeInputs(part.rows, scaling, device) for part in (train, dev)]
    labels = [torch.from_numpy(part.labels).to(device) for part in (train, dev)]
    size = _group_size(train.rows.shape[2], int(classes.max()), settings)
    groups = [np.arange(start, min(start + size, len(grid))) for start in range(0, len(grid), size)]
    trained = [_Training(grid.part(group), classes, inputs, labels, settings).run() for group in groups]
    return TrainedProbes(
        grid=grid,
        settings=settings,
        scaling=scaling,
        parameters={name: torch.cat([one.best[name] for one in trained]) for name in trained[0].best},
        epochs=np.concatenate([one.epochs for one in trained]),
        dev_accuracy=np.concatenate([one.scores[0] for one in trained]),
    )


def _group_size(width: int, classes: int, settings: ProbeSettings) -> int:
    weights = settings.capacity(width, classes) * 5  # per parameter: value, gradient, Adam's two means, best value
    activations = settings.batch * (2 * width + 3 * settings.hidden + 3 * classes)
    each = 4 * (weights + activations)
    require_memory(each, f"A probe of {classes:,} classes", "Merge rare classes, or take a smaller hidden layer.")
    return max(1, _GROUP // each)


class _Training:
    """Probes in training; when some stop, they are removed and the tensors shrink."""

    def __init__(
        self,
        grid: ProbeGrid,
        classes: np.ndarray,
        inputs: list[ProbeInputs],
        labels: list[Int[Tensor, "set example"]],
        settings: ProbeSettings,
    ) -> None:
        self._settings, self._inputs, self._labels = settings, inputs, labels
        device = labels[0].device
        self._layer, self._set = (torch.from_numpy(part).to(device) for part in (grid.layer, grid.labels))
        seeds, order = np.unique(grid.seed, return_inverse=True)
        self._order = torch.from_numpy(order).to(device)
        self._examples = _examples(seeds, len(inputs[0]), settings.batch)
        self._noise = [torch.Generator(device).manual_seed(hash64("probe-dropout", int(s)) % 2**63) for s in seeds]
        width = inputs[0].batch(np.zeros((len(seeds), 1), dtype=np.int64), self._order[:1], self._layer[:1]).shape[2]
        first = _first_weights(seeds, width, int(classes.max()), settings, device)
        parameters = {name: value[self._order] for name, value in first.items()}
        closed = (
            torch.arange(int(classes.max()), device=device) >= torch.from_numpy(classes).to(device)[self._set, None]
        )
        parameters["output_bias"].masked_fill_(closed, -math.inf)
        self.best: Parameters = {name: value.clone() for name, value in parameters.items()}
        self.epochs = np.zeros(len(grid), dtype=np.int64)
        self.scores = np.full((2, len(grid)), -math.inf)  # dev accuracy, and negative dev loss
        self._optimiser = _adam(parameters, settings)
        self._parameters = parameters
        self._waited = np.zeros(len(grid), dtype=np.int64)
        self._active = np.arange(len(grid))

    def run(self) -> "_Training":
        steps = max(_LEAST_STEPS, math.ceil(len(self._inputs[0]) / self._settings.batch))
        with torch.inference_mode(False), torch.enable_grad():
            for _ in range(self._settings.epochs):
                for _ in range(steps):
                    self._step()
                self._look()
                if len(self._active) == 0:
                    break
        return self

    def _step(self) -> None:
        index = next(self._examples)
        states = self._inputs[0].batch(index, self._order, self._layer)
        places = torch.from_numpy(index).to(self._order.device)[self._order]
        labels = self._labels[0][self._set[:, None], places]
        self._optimiser.zero_grad()
        _mean_loss(_logits(self._parameters, states, self._dropped(index.shape[1])), labels).sum().backward()
        self._optimiser.step()

    def _dropped(self, size: int) -> Float[Tensor, "probe batch input"] | None:
        """Dropout mask for the last layer's inputs; all probes of a seed share the noise."""
        rate = self._settings.dropout
        if rate == 0:
            return None
        width = self._parameters["output"].shape[1]
        noise = [torch.rand((size, width), generator=one, device=one.device) for one in self._noise]
        return (torch.stack(noise)[self._order] >= rate) / (1 - rate)

    @torch.no_grad()
    def _look(self) -> None:
        """Score on the dev part, keep improved weights, and stop probes that did not improve for `patience` epochs."""
        active = self._active
        scores = _scores(self._parameters, self._inputs[1], self._layer, self._labels[1], self._set)
        before = self.scores[:, active]
        better = (scores[0] > before[0]) | ((scores[0] == before[0]) & (scores[1] > before[1]))
        self.scores[:, active[better]] = scores[:, better]
        for name, value in self._parameters.items():
            self.best[name][active[better]] = value.detach()[better]
        self.epochs[active] += 1
        risen = scores[0] > before[0]
        self._waited[active] = np.where(risen, 0, self._waited[active] + 1)
        stays = self._waited[active] < self._settings.patience
        if not stays.all():
            self._keep(np.flatnonzero(stays))

    def _keep(self, index: np.ndarray) -> None:
        """Continue with only these active probes, each with its optimiser's state."""
        old = self._parameters
        self._parameters = {name: value.detach()[index] for name, value in old.items()}
        state = self._optimiser.state
        self._optimiser = _adam(self._parameters, self._settings)
        for name, value in self._parameters.items():
            kept = state[old[name]]
            self._optimiser.state[value] = {k: v if k == "step" else v[index] for k, v in kept.items()}
        self._active = self._active[index]
        self._layer, self._order, self._set = self._layer[index], self._order[index], self._set[index]


def _examples(seeds: np.ndarray, num: int, batch: int) -> Iterator[Int[np.ndarray, "order batch"]]:
    """Endless batches, in a separate order for each seed, pass after pass."""
    number = 0
    while True:
        orders = np.stack([stream("probe-order", int(seed), number).permutation(num) for seed in seeds])
        for start in range(0, num, batch):
            yield orders[:, start : start + batch]
        number += 1


def _first_weights(
    seeds: np.ndarray, width: int, classes: int, settings: ProbeSettings, device: torch.device
) -> Parameters:
    """Initial weights of each seed, as `torch.nn.Linear` draws them: uniform within ± 1 / √(inputs)."""
    shapes: dict[str, Any] = {"output": (settings.hidden or width, classes), "output_bias": (classes,)}
    if settings.hidden:
        shapes = {"hidden": (width, settings.hidden), "hidden_bias": (settings.hidden,)} | shapes
    drawn = {}
    for name, shape in shapes.items():
        bound = 1 / math.sqrt(width if name.startswith("hidden") else shapes["output"][0])
        values = [stream("probe-weights", int(seed), name).uniform(-bound, bound, shape) for seed in seeds]
        drawn[name] = torch.from_numpy(np.stack(values).astype(np.float32)).to(device)
    return drawn


def _adam(parameters: Parameters, settings: ProbeSettings) -> torch.optim.Adam:
    weights = [value.requires_grad_() for name, value in parameters.items() if "bias" not in name]
    biases = [value.requires_grad_() for name, value in parameters.items() if "bias" in name]
    groups = [{"params": weights, "weight_decay": settings.weight_decay}, {"params": biases}]
    return torch.optim.Adam(groups, lr=settings.rate, fused=True)


def _logits(
    parameters: Parameters, states: Float[Tensor, "probe batch width"], dropped: Tensor | None = None
) -> Float[Tensor, "probe batch class"]:
    if "hidden" in parameters:
        states = torch.baddbmm(parameters["hidden_bias"].unsqueeze(1), states, parameters["hidden"]).relu()
    if dropped is not None:
        states = states * dropped
    return torch.baddbmm(parameters["output_bias"].unsqueeze(1), states, parameters["output"])


def _mean_loss(
    logits: Float[Tensor, "probe batch class"], labels: Int[Tensor, "probe batch"]
) -> Float[Tensor, " probe"]:
    """Cross-entropy of the labelled examples, in nats."""
    losses = functional.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=NO_ANSWER, reduction="none"
    ).view_as(labels)
    return losses.sum(1) / (labels != NO_ANSWER).sum(1).clamp(min=1)


def _all_logits(parameters: Parameters, inputs: ProbeInputs, layer: Tensor) -> Iterator[Tensor]:
    widest = max(max(value.shape[1:]) for value in parameters.values())
    most = max(1, _PART // (4 * len(layer) * 3 * widest))
    for states in inputs.all(layer, most):
        yield _logits(parameters, states)


def _scores(
    parameters: Parameters, inputs: ProbeInputs, layer: Tensor, labels: Int[Tensor, "set example"], of: Tensor
) -> Float[np.ndarray, "2 probe"]:
    """Accuracy, and the negative mean loss."""
    right, loss, start = 0.0, 0.0, 0
    for logits in _all_logits(parameters, inputs, layer):
        wanted = labels[of, start : start + logits.shape[1]]
        answered: Bool[Tensor, "probe part"] = wanted != NO_ANSWER
        right = right + (first_choice(logits, wanted.clamp(min=0)) * answered).sum(1)
        loss = loss + _mean_loss(logits, wanted) * answered.sum(1)
        start += logits.shape[1]
    count = (labels != NO_ANSWER).sum(1)[of].clamp(min=1)
    return torch.stack([right / count, -loss / count]).cpu().double().numpy()
