"""Edge probes: labels of spans and span pairs from a learned mix of layers; cumulative probes train together."""

# N example, B example of a batch, W word of a span, L + 1 layers of states, D width, H projected width, K class,
# S seed, P probe (seeds x highest layers, highest layer inner), A probe that still trains

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from infoflow.foundation import UserError, hash64, stream
from infoflow.representations import Schedule, train_stacked, uniform

from ._codelength import shuffled_batches

_HELD = 1 << 24  # numbers in the mixed states of a batch that is only evaluated


@dataclass(frozen=True, kw_only=True, slots=True)
class EdgeSettings:
    """An edge probe and its training. The reference trains for 10,000 (small tasks) to 250,000 steps."""

    width: int = 256  # width of projected words; each span of a pair has its own projection
    hidden: int = 256  # units of the hidden layer
    dropout: float = 0.3
    output: str = "softmax"  # `"sigmoid"` predicts yes or no for each label, for spans with several labels
    batch: int = 32  # examples per step
    mix_speed: float = 10.0
    """Factor on the learning rate of the scalar mix.

    The reference's 50,000 steps at 0.0001 can move a weight by 5; far fewer steps cannot, at any rate that suits the
    other parameters.
    """
    schedule: Schedule = field(default_factory=lambda: Schedule(epochs=20))

    def __post_init__(self) -> None:
        if min(self.width, self.hidden, self.batch) < 1 or not 0 <= self.dropout < 1 or self.mix_speed <= 0:
            raise UserError(
                "width, hidden and batch of an edge probe must be at least 1, dropout lie in [0, 1), mix_speed be "
                f"above 0. Got {self.width}, {self.hidden}, {self.batch}, {self.dropout} and {self.mix_speed}."
            )
        if self.output not in ("softmax", "sigmoid"):
            raise UserError(f"output must be softmax or sigmoid. Got {self.output}.")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Spans:
    """Labelled spans over the states of words."""

    states: Float[np.ndarray, "word state width"]  # states 0..L of every word; may be a memory-map
    first: Int[np.ndarray, "example 2"]  # rows [start, end) of `states`
    second: Int[np.ndarray, "example 2"] | None
    labels: Int[np.ndarray, " example"] | Bool[np.ndarray, "example class"]
    """One label each; for a sigmoid probe, which labels each span has."""

    def __len__(self) -> int:
        return len(self.first)

    def read(self, index_SB: np.ndarray, device: torch.device) -> list[tuple[Tensor, Tensor]]:
        """The word states of each example's spans (S, B, W, L + 1, D), and a mask of real words (S, B, W)."""
        found = []
        for spans in (self.first, *([] if self.second is None else [self.second])):
            start, end = spans[index_SB, 0], spans[index_SB, 1]
            rows = start[..., None] + np.arange(int((end - start).max()))
            inside = rows < end[..., None]
            states = torch.from_numpy(np.asarray(self.states[np.where(inside, rows, start[..., None])]))
            found.append((states.float().to(device), torch.from_numpy(inside).to(device)))
        return found


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CumulativeProbes:
    """Edge probes $P^{(l)}$ whose mix sees layers 0..l, for every l and seed."""

    weights: Float[np.ndarray, "seed highest state"]
    """Mixing weights, softmax(a); 0 for layers that a probe does not see."""
    scale: Float[np.ndarray, "seed highest"]  # γ
    predicted: Int[np.ndarray, "seed highest example"] | Bool[np.ndarray, "seed highest example class"]
    """Predictions on the test spans: the label, or for sigmoid probes which labels."""
    capacity: int  # parameters of one probe that sees all layers


def edge_probe(
    train: Spans,
    dev: Spans,
    test: Spans,
    classes: int,
    seed: int | Sequence[int] = 0,
    settings: EdgeSettings | None = None,
    device: torch.device | None = None,
) -> CumulativeProbes:
    r"""Train edge probes on layers 0..l for all l and all seeds as one batched problem.

    $$ h = \gamma \sum_{k \le l} \mathrm{softmax}(a)_k\, h_k, \quad v_i = W h_i + b, \quad
       e = \sum_i \mathrm{softmax}(u^\top v)_i\, v_i, \quad y = f(e_1, e_2) $$

    | symbol      | here                                                                                        |
    |-------------|---------------------------------------------------------------------------------------------|
    | $h_k$       | a word's state in layer k, without layer normalisation                                      |
    | $a, \gamma$ | scalar mix, one for each probe; starts as the plain mean                                    |
    | $W, b, u$   | projection and self-attentive pooling over the span; separate ones for a pair's second span |
    | $f$         | a hidden layer: tanh, layer normalisation, dropout                                          |

    Probes are trained by Adam on the cross-entropy of the softmax, or of each label's sigmoid. The dev spans decide
    when the rate falls and when a probe stops, and the best parameters are kept. With a single `seed` the first axis of
    results has one entry.

    Raises:
        UserError: A part has no span, a span is empty, or `settings.output` does not allow the labels.

    Source: [@tenney2019edge], [@tenney2019], jiant v1.
    """
    settings = settings or EdgeSettings()
    for name, part in (("train", train), ("dev", dev), ("test", test)):
        _check_spans(name, part, classes, settings.output)
    seeds = [seed] if isinstance(seed, int) else list(seed)
    with torch.inference_mode(False):
        stack = _EdgeStack(
            layers=train.states.shape[1],
            seeds=seeds,
            spans=1 if train.second is None else 2,
            classes=classes,
            settings=settings,
            device=device or torch.device("cpu"),
        )
        fresh = stack.first_parameters(train.states.shape[2])
        trained = stack.trained(fresh, train, dev)
        said = stack.logits_of(trained, test)
    predicted = said.argmax(3) if settings.output == "softmax" else said > 0
    return CumulativeProbes(
        weights=stack.mix(trained[0], stack.every).cpu().numpy(),
        scale=trained[1].view(len(seeds), -1).cpu().numpy(),
        predicted=predicted.cpu().numpy(),
        capacity=sum(each[0].numel() for each in fresh),
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _EdgeStack:
    """Probes of all seeds and highest layers."""

    layers: int
    seeds: Sequence[int]
    spans: int
    classes: int
    settings: EdgeSettings
    device: torch.device

    @property
    def every(self) -> Tensor:
        return torch.arange(len(self.seeds) * self.layers, device=self.device)

    def first_parameters(self, width: int) -> list[Tensor]:
        """Initial mix (a, γ), span projections (W, b, u), and classifier (weights, biases, scale of the norm)."""
        size, hidden, num = self.settings.width, self.settings.hidden, len(self.seeds) * self.layers
        generators = [stream("edge-probe", seed) for seed in self.seeds]

        def drawn(given: int, *shape: int) -> Tensor:
            return uniform(generators, self.layers, 1 / math.sqrt(given), shape)

        made = [torch.zeros(num, self.layers), torch.ones(num, 1)]
        for _ in range(self.spans):
            made += [drawn(width, width, size), drawn(width, 1, size), drawn(size, size, 1)]
        joined = self.spans * size
        made += [drawn(joined, joined, hidden), drawn(joined, 1, hidden)]
        made += [torch.ones(num, 1, hidden), torch.zeros(num, 1, hidden)]
        made += [drawn(hidden, hidden, self.classes), drawn(hidden, 1, self.classes)]
        return [each.to(self.device) for each in made]

    def mix(self, logits_AL: Tensor, active: Int[Tensor, " probe"]) -> Float[Tensor, "seed highest state"]:
        """Mixing weights; all 0 for stopped probes."""
        highest = (active % self.layers)[:, None]
        hidden = torch.arange(self.layers, device=self.device) > highest
        weights = logits_AL.masked_fill(hidden, -torch.inf).softmax(1)
        whole = weights.new_zeros(len(self.seeds) * self.layers, self.layers).index_copy(0, active, weights)
        return whole.view(len(self.seeds), self.layers, self.layers)

    def logits(
        self,
        parameters: Sequence[Tensor],
        active: Int[Tensor, " probe"],
        read: Sequence[tuple[Tensor, Tensor]],
        dropout: Callable[[Tensor], Tensor] | None = None,
    ) -> Float[Tensor, "probe example class"]:
        """Logits of the probes at these indices; `read` has one entry for all seeds or one for each."""
        weights = self.mix(parameters[0], active)
        scale, seed_of = parameters[1][:, :, None, None], active // self.layers
        pooled = []
        for index, (states, inside) in enumerate(read):
            states = states.expand(len(self.seeds), *states.shape[1:])
            mixed = torch.einsum("shl,sbwld->shbwd", weights, states).flatten(0, 1)[active] * scale
            inside = inside.expand(len(self.seeds), *inside.shape[1:])[seed_of]
            pooled.append(_pooled(mixed, inside, *parameters[2 + 3 * index : 5 + 3 * index]))
        first, bias, gain, offset, last, last_bias = parameters[2 + 3 * self.spans :]
        hidden = torch.baddbmm(bias, torch.cat(pooled, dim=2), first).tanh()
        hidden = functional.layer_norm(hidden, hidden.shape[-1:]) * gain + offset
        return torch.baddbmm(last_bias, hidden if dropout is None else dropout(hidden), last)

    def losses(self, logits: Tensor, labels: Tensor) -> Float[Tensor, "probe example"]:
        """Cross-entropy of each example in nats; for a sigmoid probe, summed over its labels."""
        if self.settings.output == "sigmoid":
            return functional.binary_cross_entropy_with_logits(logits, labels.float(), reduction="none").sum(2)
        flat = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        return flat.view(labels.shape)

    def trained(self, fresh: Sequence[Tensor], train: Spans, dev: Spans) -> list[Tensor]:
        labels, dev_labels = (torch.from_numpy(part.labels).to(self.device) for part in (train, dev))
        generators = [torch.Generator().manual_seed(hash64("edge-dropout", seed) % 2**63) for seed in self.seeds]
        kept = 1 - self.settings.dropout

        def loss(parameters: Sequence[Tensor], active: Tensor, index_SB: Tensor) -> Tensor:
            shape = (*index_SB.shape[1:], self.settings.hidden)
            drawn = torch.stack([torch.rand(shape, generator=each) for each in generators]).to(self.device)
            alive = ((drawn < kept) / kept)[active // self.layers]
            read = train.read(index_SB.numpy(), self.device)
            said = self.logits(parameters, active, read, lambda hidden: hidden * alive)
            return self.losses(said, labels[index_SB.to(self.device)[active // self.layers]]).mean(1)

        def development(parameters: Sequence[Tensor], active: Tensor) -> Tensor:
            total = torch.zeros(len(active), device=self.device)
            for index in _parts(dev, self.layers * len(active)):
                said = self.logits(parameters, active, dev.read(index[None], self.device))
                wanted = dev_labels[torch.from_numpy(index).to(self.device)]
                total += self.losses(said, wanted.expand(len(active), *wanted.shape)).sum(1)
            return total / len(dev)

        batches = shuffled_batches(len(train), self.settings.batch, "edge-probe", self.seeds)
        speeds = [self.settings.mix_speed] * 2 + [1.0] * (len(fresh) - 2)
        return train_stacked(fresh, batches, loss, development, self.settings.schedule, speeds)

    def logits_of(self, parameters: Sequence[Tensor], spans: Spans) -> Float[Tensor, "seed highest example class"]:
        with torch.no_grad():
            said = [
                self.logits(parameters, self.every, spans.read(index[None], self.device))
                for index in _parts(spans, self.layers * len(self.every))
            ]
        return torch.cat(said, dim=1).unflatten(0, (len(self.seeds), self.layers))


def _pooled(mixed: Tensor, inside: Tensor, weight: Tensor, bias: Tensor, query: Tensor) -> Tensor:
    """Projected words (A, B, W, D) → spans (A, B, H), by self-attention over the words in `inside`."""
    num, examples, words, _ = mixed.shape
    projected = torch.baddbmm(bias, mixed.flatten(1, 2), weight)
    scores = (projected @ query).view(num, examples, words)
    shares = scores.masked_fill(~inside, -torch.inf).softmax(2)
    return torch.einsum("pbw,pbwh->pbh", shares, projected.view(num, examples, words, -1))


def _parts(spans: Spans, cost: int) -> Iterator[np.ndarray]:
    """Indices of all examples, a few at a time, so that short spans are not padded to the length of the longest."""
    longest = max(int((each[:, 1] - each[:, 0]).max()) for each in (spans.first, spans.second) if each is not None)
    size = max(1, _HELD // (cost * longest * spans.states.shape[2]))
    for start in range(0, len(spans), size):
        yield np.arange(start, min(start + size, len(spans)))


def _check_spans(name: str, spans: Spans, classes: int, output: str) -> None:
    if len(spans) == 0:
        raise UserError(f"An edge probe needs spans in each part. The part {name} has none.")
    for ends in (spans.first, spans.second):
        if ends is not None and ((ends[:, 0] >= ends[:, 1]).any() or ends.min() < 0 or ends.max() > len(spans.states)):
            raise UserError(f"Spans must hold at least one word of 0..{len(spans.states)}. One of {name} does not.")
    labels = spans.labels
    right = labels.shape == ((len(spans), classes) if output == "sigmoid" else (len(spans),))
    if not right or (output == "softmax" and (labels.min() < 0 or labels.max() >= classes)):
        wanted = f"({len(spans)}, {classes}) of yes and no" if output == "sigmoid" else f"one of 0..{classes - 1} each"
        raise UserError(
            f"Labels of a {output} probe must be {wanted}. Those of {name} have shape {labels.shape} and lie in "
            f"{labels.min()}..{labels.max()}."
        )
