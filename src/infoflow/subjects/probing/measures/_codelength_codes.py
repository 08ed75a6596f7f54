"""The two codes for labels given features: online, in blocks, and variational, with weights as precise as needed."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import softplus

from infoflow.foundation import UserError, hash64, stream
from infoflow.representations import Schedule, StackedAdam, mlp_logits, mlp_parameters, train_stacked

from ._codelength import (
    PREFIXES,
    CodedTargets,
    DescriptionLength,
    Features,
    Labelled,
    Several,
    like,
    sent_blocks,
    shuffled_batches,
)

# N target, S seed, P probe (seeds x layers, layers inner)


def online_codelength(
    x: Features,
    y: Features,
    classes: int,
    seed: int | Sequence[int] = 0,
    *,
    groups: np.ndarray | None = None,
    dev: Labelled | None = None,
    test: Labelled | None = None,
    hidden: Sequence[int] = (256, 256),
    fractions: Sequence[float] = PREFIXES,
    batch: int = 64,
    schedule: Schedule | None = None,
    shuffle_seed: int = 0,
    legacy_units: bool = False,
) -> DescriptionLength:
    r"""The online (prequential) code: each block of labels is coded with a probe trained on all blocks before it.

    $$ L = t_1 \log_2 K - \sum_{i=1}^{S-1} \log_2 p_{\theta_i}(y_{t_i+1..t_{i+1}} \mid x_{t_i+1..t_{i+1}}) $$

    | symbol     | here                                                                          |
    |------------|-------------------------------------------------------------------------------|
    | $t_i$      | labels among the first `fractions[i]` of the shuffled sentences               |
    | $K$        | `classes`; all are outputs from the start, so an unseen one costs finite bits |
    | $\theta_i$ | a new perceptron (ReLU), trained on these labels and stopped by `dev`         |

    The probe trained on all labels is used for `data_bits` and `accuracy` only. All layers and seeds train together.

    Args:
        x: Features (targets, width), or (targets, layers, width) for several layers.
        y: Labels (targets,) in 0..classes − 1; −1 is ignored.
        classes: K.
        seed: Seeds initial weights and the order of batches; several seeds add a first axis to the results.
        groups: The sentence of each target: prefixes hold whole sentences. Default: each target is its own sentence.
        dev: Features and labels for early stopping; they are not coded. Without them, the last tenth of each prefix is
            used, and the probe is trained on the rest.
        test: Features and labels for `accuracy`.
        hidden: Sizes of hidden layers; none for a linear probe.
        fractions: Shares of sentences, rising to 1; empty or duplicate prefixes of a small corpus are dropped.
        batch: Targets per step.
        schedule: Default: Adam at 0.001, halved after every epoch without a new best loss; a probe stops after five
            epochs without an improvement by 0.001 nats, or after 50.
        shuffle_seed: Seeds the order of sentences.
        legacy_units: Add natural logarithms to bits, as the reference's code does; `units` is then "mixed".

    Raises:
        UserError: Lengths or widths differ, labels are out of range, all labels are ignored, or a feature is not
            finite.

    Source: [@voita2020], the authors' code; they report bits / 1024, and natural logarithms as bits.
    """
    with torch.inference_mode(False):
        given = CodedTargets.of(x, y, classes, groups)
        if batch < 1:
            raise UserError(f"batch must be at least 1. Got {batch}.")
        several = Several(given, seed, x.ndim)
        seeds = several.seeds
        order, blocks = sent_blocks(given.groups, fractions, shuffle_seed)
        coder = _Coder(
            sent=given.taken(order),
            dev=like(given, dev, "dev"),
            seeds=seeds,
            hidden=tuple(hidden),
            batch=batch,
            schedule=schedule or Schedule(),
        )
        costs = np.full((len(given), len(seeds) * given.layers), math.log2(classes))
        for index, known in enumerate(blocks):
            final = coder.trained(index, known)
            if index < len(blocks) - 1:
                costs[known : blocks[index + 1]] = coder.nats(final, known, blocks[index + 1])
        data = coder.nats(final, 0, len(given))
        right = coder.right(final, like(given, test, "test"))
    unit = 1.0 if legacy_units else math.log(2)
    costs[blocks[0] :] /= unit
    return DescriptionLength(
        bits=several.of(costs.sum(0)),
        data_bits=several.of(data.sum(0) / unit),
        uniform_bits=len(given) * math.log2(classes),
        test_right=None if right is None else several.targets_first(right),
        targets=len(given),
        blocks=blocks,
        target_bits=several.by_target(costs, order),
        target_data_bits=several.by_target(data / unit, order),
        units="mixed" if legacy_units else "bits",
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Coder:
    """Trains the probes of all seeds and layers on prefixes, and evaluates them."""

    sent: CodedTargets
    dev: CodedTargets | None
    seeds: Sequence[int]
    hidden: tuple[int, ...]
    batch: int
    schedule: Schedule

    def trained(self, index: int, known: int) -> list[Tensor]:
        """New probes, trained on the first `known` labels."""
        prefix = self.sent.taken(np.arange(known))
        train, dev = (prefix, self.dev) if self.dev is not None else _apart(prefix)
        sizes = (self.sent.x_NLD.shape[2], *self.hidden, self.sent.classes)
        key = f"codelength-{index}"
        device = self.sent.y_N.device
        fresh = [each.to(device) for each in mlp_parameters(key, self.seeds, self.sent.layers, sizes)]

        def loss(parameters: Sequence[Tensor], active: Tensor, index_SB: Tensor) -> Tensor:
            index_SB = index_SB.to(device)
            logits = mlp_logits(parameters, train.inputs(index_SB, active))
            targets = train.y_N[index_SB[active // train.layers]]
            nats = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
            return nats.view(targets.shape).mean(1)

        def development(parameters: Sequence[Tensor], active: Tensor) -> Tensor:
            return dev.nats(lambda x: mlp_logits(parameters, x), active).mean(0)

        batches = shuffled_batches(len(train), self.batch, key, self.seeds)
        return train_stacked(fresh, batches, loss, development, self.schedule)

    def nats(self, parameters: Sequence[Tensor], start: int, end: int) -> np.ndarray:
        """−ln p of the labels from `start` to `end`, (N, P)."""
        with torch.no_grad():
            part, every = self.sent.taken(np.arange(start, end)), self._every
            return part.nats(lambda x: mlp_logits(parameters, x), every).double().cpu().numpy()

    def right(self, parameters: Sequence[Tensor], test: CodedTargets | None) -> np.ndarray | None:
        """Which test labels each probe predicts, (N, P)."""
        if test is None:
            return None
        right: list[Tensor] = []
        with torch.no_grad():
            test.nats(lambda x: mlp_logits(parameters, x), self._every, right)
        return torch.cat(right).cpu().numpy()

    @property
    def _every(self) -> Tensor:
        return torch.arange(len(self.seeds) * self.sent.layers, device=self.sent.y_N.device)


def _apart(prefix: CodedTargets) -> tuple[CodedTargets, CodedTargets]:
    """Training and development part of a prefix; the last tenth of its sentences is for early stopping."""
    change = np.flatnonzero(np.diff(prefix.groups)) + 1
    starts = np.concatenate([[0], change])
    if len(starts) < 2:
        return prefix, prefix
    first = int(starts[-max(1, len(starts) // 10)])
    return prefix.taken(np.arange(first)), prefix.taken(np.arange(first, len(prefix)))


# N target, S seed, P probe (seeds x layers, layers inner), B target of a batch, I input, O output


_K = (0.63576, 1.87320, 1.48695)
_TINY = 1e-8
_EACH = 6  # parameters of a linear layer


@dataclass(frozen=True, kw_only=True, slots=True)
class VariationalTraining:
    """How the Bayesian probe is trained: without early stopping, since its code includes the cost of its weights."""

    rate: float = 1e-3
    """Learning rate of Adam."""
    epochs: int = 0
    """Number of epochs; 0: 200 as published, but at least 30 / rate steps. Log variances start at −9 and need 10 / rate
    steps to reach the prior; until then the code of the weights is up to six times too long
    (`experiments/validation/codelength`)."""
    batch: int = 64
    """Targets per step."""

    def epochs_of(self, targets: int) -> int:
        """Number of epochs for this number of targets."""
        return self.epochs or max(200, math.ceil(30 / self.rate / math.ceil(targets / self.batch)))


def variational_codelength(
    x: Features,
    y: Features,
    classes: int,
    seed: int | Sequence[int] = 0,
    *,
    test: Labelled | None = None,
    hidden: Sequence[int] = (256, 256),
    training: VariationalTraining | None = None,
    threshold: float | Sequence[float] = 0.0,
    legacy_units: bool = False,
) -> DescriptionLength:
    r"""The variational code: the length of the probe, by Bayesian compression, and of the labels coded by it.

    $$ L = \mathrm{KL}(q(w, z) \,\|\, p) - \sum_n \log_2 \hat p(y_n \mid x_n) $$

    | symbol    | here                                                                                       |
    |-----------|--------------------------------------------------------------------------------------------|
    | $w$       | weights and biases, normal with learned means and variances; prior N(0, 1)                  |
    | $z$       | a gate for each input of each linear layer, normal; see `gate_kl`                           |
    | $\hat p$  | the perceptron (ReLU) with mean weights and gates, on the training labels                   |

    The loss of a batch is its cross-entropy in nats, summed over targets, plus KL · (targets in the batch) / N. Weights
    are sampled through their activations (local reparametrisation). `surviving` counts the inputs of each linear layer
    with $\log \alpha <$ `threshold`. All layers and seeds train together.

    Args:
        x: As in `online_codelength`, as are `y`, `classes`, `seed`, `test`, `hidden` and `legacy_units`.
        training: Default: Adam at 0.001, 64 targets per step, 200 epochs or 30,000 steps if that is more.
        threshold: In nats, one for all linear layers or one for each. A good choice is between the two modes of a
            histogram of `log_alpha`. At 0 the noise is as large as the gate.

    Raises:
        UserError: As in `online_codelength`.

    Source: [@voita2020] and [@louizos2017], the authors' code. Their 664-55-35 surviving inputs are for thresholds 0,
    −3, −5.
    """
    training = training or VariationalTraining()
    if training.batch < 1 or training.epochs < 0 or training.rate <= 0:
        raise UserError(f"batch must be at least 1, epochs not negative, and rate above 0. Got {training}.")
    with torch.inference_mode(False):
        given = CodedTargets.of(x, y, classes)
        several = Several(given, seed, x.ndim)
        sizes = (given.x_NLD.shape[2], *hidden, classes)
        parameters = _trained(given, several.seeds, sizes, training)
        every = torch.arange(len(parameters[0]), device=given.y_N.device)
        right: list[Tensor] = []
        with torch.no_grad():
            data = given.nats(lambda x: mean_logits(parameters, x), every).double().cpu().numpy()
            model = total_kl(parameters).double().cpu().numpy()
            if (like_test := like(given, test, "test")) is not None:
                like_test.nats(lambda x: mean_logits(parameters, x), every, right)
        alphas = [log_alpha(*parameters[at : at + 2])[:, 0].cpu().numpy() for at in range(0, len(parameters), _EACH)]
    unit = 1.0 if legacy_units else math.log(2)
    by_target = several.by_target(data / unit, np.arange(len(given)))
    return DescriptionLength(
        bits=several.of((model + data.sum(0)) / unit),
        data_bits=several.of(data.sum(0) / unit),
        uniform_bits=len(given) * math.log2(classes),
        test_right=several.targets_first(torch.cat(right).cpu().numpy()) if right else None,
        targets=len(given),
        blocks=(),
        target_bits=by_target,
        target_data_bits=by_target,
        surviving=several.of(surviving_inputs(alphas, threshold)),
        log_alpha=tuple(np.asarray(several.of(each)) for each in alphas),
        units="mixed" if legacy_units else "bits",
    )


def gate_kl(alpha_log: Float[Tensor, "*probe input"]) -> Tensor:
    r"""Divergence of the gates of a linear layer from the log-uniform prior, in nats, summed over inputs.

    $$ -\sum_i \left[ k_1 \sigma(k_2 + k_3 \log \alpha_i) - \tfrac12 \ln(1 + \alpha_i^{-1}) - k_1 \right], \quad
       k = (0.63576,\, 1.87320,\, 1.48695) $$

    Source: [@louizos2017], with an approximation by Molchanov et al.
    """
    k1, k2, k3 = _K
    return -(k1 * torch.sigmoid(k2 + k3 * alpha_log) - 0.5 * softplus(-alpha_log) - k1).sum(-1)


def normal_kl(mean: Float[Tensor, "probe row column"], log_variance: Float[Tensor, "probe row column"]) -> Tensor:
    r"""Divergence of normal weights from N(0, 1), in nats, summed over weights:
    $\sum \tfrac12 (\sigma^2 + \mu^2 - 1 - \ln \sigma^2)$."""
    return (0.5 * (log_variance.exp() + mean**2 - 1 - log_variance)).sum((-1, -2))


def log_alpha(gate_mean: Tensor, gate_log_variance: Tensor) -> Tensor:
    r"""$\ln(\sigma_z^2 / \mu_z^2)$: the noise-to-signal ratio of a gate, in nats."""
    return gate_log_variance - (gate_mean**2 + _TINY).log()


def surviving_inputs(alphas: Sequence[np.ndarray], threshold: float | Sequence[float]) -> np.ndarray:
    """Inputs of each linear layer that carry more than noise, (probes, linear layers)."""
    limits = [threshold] * len(alphas) if isinstance(threshold, int | float) else list(threshold)
    if len(limits) != len(alphas):
        raise UserError(f"threshold must be one number, or one for each of {len(alphas)} linear layers. Got {limits}.")
    return np.stack([(each < limit).sum(-1) for each, limit in zip(alphas, limits, strict=True)], axis=-1)


def total_kl(parameters: Sequence[Tensor]) -> Float[Tensor, " probe"]:
    """Divergence of all gates, weights and biases from their priors, in nats."""
    total = torch.zeros(len(parameters[0]), device=parameters[0].device)
    for at in range(0, len(parameters), _EACH):
        gate, gate_spread, weight, weight_spread, bias, bias_spread = parameters[at : at + _EACH]
        total = total + gate_kl(log_alpha(gate, gate_spread))[:, 0]
        total = total + normal_kl(weight, weight_spread) + normal_kl(bias, bias_spread)
    return total


def mean_logits(parameters: Sequence[Tensor], x_PBD: Tensor) -> Tensor:
    """Logits of the perceptrons with mean gates and weights."""

    def layer(gate: Tensor, gate_spread: Tensor, hidden: Tensor, weights: Sequence[Tensor]) -> Tensor:
        weight, _, bias, _ = weights
        return torch.baddbmm(bias, hidden * gate, weight)

    return _forward(parameters, x_PBD, layer)


def sampled_logits(parameters: Sequence[Tensor], x_PBD: Tensor, noise: Callable[[int], Tensor]) -> Tensor:
    """Logits with gates and activations sampled for each target; `noise` returns normal numbers (P, B, size)."""

    def layer(gate: Tensor, gate_spread: Tensor, hidden: Tensor, weights: Sequence[Tensor]) -> Tensor:
        weight, weight_spread, bias, bias_spread = weights
        gated = hidden * (gate + (0.5 * gate_spread).exp() * noise(hidden.shape[2]))
        mean = torch.baddbmm(bias, gated, weight)
        variance = torch.baddbmm(bias_spread.exp(), gated**2, weight_spread.exp())
        return mean + variance.sqrt() * noise(weight.shape[2])

    return _forward(parameters, x_PBD, layer)


def _forward(parameters: Sequence[Tensor], hidden: Tensor, layer: Callable[..., Tensor]) -> Tensor:
    for at in range(0, len(parameters), _EACH):
        gate, gate_spread, *weights = parameters[at : at + _EACH]
        hidden = layer(gate, gate_spread, hidden.relu() if at else hidden, weights)
    return hidden


def first_parameters(seeds: Sequence[int], layers: int, sizes: Sequence[int]) -> list[Tensor]:
    r"""Initial means and log variances of gates, weights and biases by linear layer; equal for all layers of a seed.

    Gates ~ N(1, .01), weights $\sim N(0, 1/\sqrt{\text{in}})$, biases 0, all log variances ~ N(−9, .01); second
    arguments are standard deviations.
    """
    made: list[Tensor] = []
    generators = [stream("codelength-variational", seed) for seed in seeds]
    for given, out in pairwise(sizes):
        spread = (-9.0, 0.01)
        for shape, (mean, deviation) in (
            ((1, given), (1.0, 0.01)),
            ((1, given), spread),
            ((given, out), (0.0, 1 / math.sqrt(given))),
            ((given, out), spread),
            ((1, out), (0.0, 0.0)),
            ((1, out), spread),
        ):
            drawn = torch.stack([torch.from_numpy(each.normal(mean, deviation, shape)).float() for each in generators])
            made.append(drawn.repeat_interleave(layers, dim=0))
    return made


def _trained(
    given: CodedTargets, seeds: Sequence[int], sizes: Sequence[int], training: VariationalTraining
) -> list[Tensor]:
    device = given.y_N.device
    parameters = [each.to(device).requires_grad_() for each in first_parameters(seeds, given.layers, sizes)]
    every = torch.arange(len(parameters[0]), device=device)
    adam = StackedAdam(parameters, torch.full((len(every),), training.rate, device=device))
    generators = [torch.Generator().manual_seed(hash64("codelength-noise", seed) % 2**63) for seed in seeds]
    batches = shuffled_batches(len(given), training.batch, "codelength-variational", seeds)
    for epoch in range(training.epochs_of(len(given))):
        for index_SB in batches(epoch):

            def noise(size: int, num: int = index_SB.shape[1]) -> Tensor:
                drawn = torch.stack([torch.randn(num, size, generator=each) for each in generators])
                return drawn.repeat_interleave(given.layers, dim=0).to(device)

            index_SB = index_SB.to(device)
            with torch.enable_grad():
                logits = sampled_logits(parameters, given.inputs(index_SB, every), noise)
                targets = given.y_N[index_SB].repeat_interleave(given.layers, dim=0)
                nats = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
                loss = nats + total_kl(parameters).sum() * (index_SB.shape[1] / len(given))
                gradients = torch.autograd.grad(loss, parameters)
            adam.step(parameters, gradients)
    return [each.detach() for each in parameters]
