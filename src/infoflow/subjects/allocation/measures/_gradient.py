"""Loss and gradient of a model on an evaluation set, without side effects on the model or its training."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from infoflow._transformers import PreTrainedModel
from infoflow.foundation import UserError, dealt, hash64, hash64_array
from infoflow.models import learning_parameters
from infoflow.objectives import AbstractObjective, Batch, LossTerm
from infoflow.training import TrainingData

# The sentences for a recording's losses: chosen once, with fixed noise.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class EvaluationSet:
    """Fixed examples in disjoint parts; differences between parts show the effect of the choice of examples."""

    name: str  # "train" or "held-out", by the source of the sentences
    objective: AbstractObjective  # as in evaluation: without training-only noise
    parts: tuple[tuple[Batch, ...], ...]
    counts: tuple[dict[str, int], ...]  # for each part: supervised items of each term of the loss
    sentences: int
    tokens: int  # source tokens, without padding
    micro_tokens: int = 4096  # maximum padded tokens in one pass

    @property
    def totals(self) -> dict[str, int]:
        """Supervised items of each term."""
        return {name: sum(counts[name] for counts in self.counts) for name in self.objective.term_weights}


def evaluation_set(
    name: str,
    objective: AbstractObjective,
    data: TrainingData,
    tokens: int,
    parts: int = 2,
    seed: int = 0,
    micro_tokens: int = 4096,
) -> EvaluationSet:
    """Sentences of `data`, chosen by the hash of (seed, sentence id), up to `tokens` source tokens.

    The noise of a sentence is keyed by (seed, its id) with the epoch set to 0, so it never changes;
    `infoflow.training.evaluate` uses the same noise. Sentences are distributed to the parts in turn, with copies in the
    same part, so that parts have nearly equal size. No sentence is dropped, and batching affects only rounding.
    """
    if tokens < 1 or parts < 1:
        raise UserError(f"An evaluation set needs at least 1 token and 1 part. Got {tokens} tokens and {parts} parts.")
    objective = objective.for_evaluation()
    lengths, ids = np.asarray(data.source.lengths), np.asarray(data.source.sentence_ids)
    order = np.argsort(hash64_array(("allocation-sentences", seed), ids), kind="stable")
    chosen = order[: int(np.searchsorted(np.cumsum(lengths[order]), tokens)) + 1]
    texts = np.array([hash64(*data.source.row(int(row)).tolist()) for row in chosen], dtype=np.uint64)
    part_of = dealt(texts, parts)
    if (distinct := len(np.unique(texts))) < parts:
        raise UserError(
            f"The {name} set of {tokens} tokens has {distinct} different sentences, fewer than its {parts} parts. "
            "Ask for more tokens or fewer parts."
        )
    targets = (
        np.asarray(data.target.lengths) if objective.needs_translation and data.target is not None else 0 * lengths
    )
    batches = tuple(
        tuple(
            data.batch(objective, piece, ("evaluation-noise", seed), 0)
            for piece in _batches(np.sort(chosen[part_of == part]), lengths, targets, micro_tokens)
        )
        for part in range(parts)
    )
    return EvaluationSet(
        name=name,
        objective=objective,
        parts=batches,
        counts=tuple(_counts(objective, part) for part in batches),
        sentences=len(chosen),
        tokens=int(lengths[chosen].sum()),
        micro_tokens=micro_tokens,
    )


# Cost of an additional forward and backward pass, in tokens: 4 ms, or 90 tokens, at width 64 with 6 layers on one CPU
# thread. A GPU processes thousands of tokens in the time of a launch.
_CPU_PASS, _GPU_PASS = 64, 4096


def _batches(rows: np.ndarray, source: np.ndarray, target: np.ndarray, budget: int) -> list[np.ndarray]:
    """Rows in the cheapest batches, counting padding and passes; at most `budget` padded tokens each.

    Sentences are few and of all lengths: one batch would be mostly padding (three times the cost).
    """
    rows = rows[np.argsort(source[rows] + target[rows], kind="stable")]
    lengths = np.stack([source[rows], target[rows]])
    one_pass = _GPU_PASS if torch.cuda.is_available() else _CPU_PASS
    best, start = np.full(len(rows) + 1, np.inf), np.zeros(len(rows) + 1, dtype=int)
    best[0] = 0.0
    for stop in range(1, len(rows) + 1):
        longest = np.maximum.accumulate(lengths[:, :stop][:, ::-1], axis=1)[:, ::-1].sum(axis=0)
        padded = longest * (stop - np.arange(stop))
        fits = padded <= budget
        fits[-1] = True  # a sentence longer than the budget gets its own batch
        costs = np.where(fits, best[:stop] + padded + one_pass, np.inf)
        start[stop] = int(costs.argmin())
        best[stop] = costs[start[stop]]
    pieces, stop = [], len(rows)
    while stop:
        pieces.append(rows[start[stop] : stop])
        stop = int(start[stop])
    return pieces[::-1]


def _counts(objective: AbstractObjective, batches: tuple[Batch, ...]) -> dict[str, int]:
    totals = dict.fromkeys(objective.term_weights, 0)
    for batch in batches:
        for name, count in objective.counts(batch).items():
            totals[name] += count
    return totals


# One forward pass over sentences of an evaluation set.


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ModelPass:
    """A batch, with additional arguments for stacks whose rows hold several sentences."""

    batch: Batch
    arguments: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)  # for `forward`, by module name

    def to(self, device: torch.device) -> "ModelPass":
        """This pass on another device."""
        arguments = {name: {key: t.to(device) for key, t in given.items()} for name, given in self.arguments.items()}
        return ModelPass(batch=self.batch.to(device), arguments=arguments)

    def loss(self, module: PreTrainedModel, objective: AbstractObjective) -> dict[str, LossTerm]:
        """The objective's terms on these sentences."""
        with _passing(module, self.arguments):
            return objective.loss(module, self.batch, self.batch.noise)


@contextmanager
def _passing(module: nn.Module, arguments: Mapping[str, Mapping[str, Tensor]]) -> Iterator[None]:
    """Override these arguments in calls of the named submodules."""
    with ExitStack() as hooks:
        for name, given in arguments.items():

            def replace(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], given=given) -> tuple[Any, Any]:
                return args, {**kwargs, **given}

            hooks.callback(module.get_submodule(name).register_forward_pre_hook(replace, with_kwargs=True).remove)
        yield


# Loss and gradient of a model on an evaluation set, without side effects on the model or its training.


class FlatParameters:
    """The trainable parameters of a module as one vector: read, restored exactly, differentiated."""

    def __init__(self, module: nn.Module) -> None:
        named = list(learning_parameters(module).items())
        if not named:
            raise UserError("Loss change allocation needs trainable parameters. Got a model that is frozen.")
        wrong = [name for name, p in named if p.dtype not in (torch.float32, torch.float64)]
        if wrong:
            raise UserError(
                f"Loss change allocation needs float32 weights; to train in bfloat16, use autocast. {wrong[0]} is "
                f"{str(dict(named)[wrong[0]].dtype).removeprefix('torch.')}, and its small steps would underflow."
            )
        self.names = [name for name, _ in named]
        self.parameters = [p for _, p in named]
        self._sizes = [p.numel() for p in self.parameters]
        self._shapes = [p.shape for p in self.parameters]

    @property
    def dtype(self) -> torch.dtype:
        return self.parameters[0].dtype

    @property
    def size(self) -> int:
        return sum(self._sizes)

    def empty(self) -> Float[Tensor, " parameter"]:
        """A vector of zeros on the parameters' device."""
        first = self.parameters[0]
        return torch.zeros(self.size, dtype=first.dtype, device=first.device)

    def views(self, vector: Tensor) -> list[Tensor]:
        """Parts of the vector in the shapes of the parameters; they share its memory."""
        parts = vector.split(self._sizes)
        return [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def read(self) -> Float[Tensor, " parameter"]:
        """A copy of the weights."""
        return torch.cat([p.detach().reshape(-1) for p in self.parameters])

    def write(self, vector: Float[Tensor, " parameter"]) -> None:
        """Write weights into the module."""
        with torch.no_grad():
            torch._foreach_copy_(self.parameters, self.views(vector))


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """Evaluate in full precision inside a `with` block, then restore modes, buffers and random states."""
    modes = [(child, child.training) for child in module.modules()]
    buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]
    device = next(module.parameters()).device
    devices = [device] if device.type == "cuda" else []
    try:
        module.eval()
        # Dropout is off, so nothing should draw random numbers; a user's model may still do so.
        with torch.random.fork_rng(devices=devices), torch.autocast(device.type, enabled=False), torch.enable_grad():
            yield
    finally:
        for child, mode in modes:
            child.training = mode
        for buffer, before in buffers:
            buffer.copy_(before)


def pass_losses(module: PreTrainedModel, objective: AbstractObjective, passes: Sequence[ModelPass]) -> dict[str, float]:
    """Sum of each term over the passes, in nats; forward only."""
    totals = dict.fromkeys(objective.term_weights, 0.0)
    with torch.no_grad():
        for each in passes:
            for name, term in each.loss(module, objective).items():
                totals[name] += float(term.total)
    return totals


def pass_gradients(
    module: PreTrainedModel,
    flat: FlatParameters,
    objective: AbstractObjective,
    passes: Sequence[ModelPass],
    used: set[int],
) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Sum of each term over the passes and its gradient as a vector, neither divided by the number of items.

    `.grad` is neither read nor written. The indices of parameters that a term depends on are added to `used`.
    """
    names = list(objective.term_weights)
    totals = dict.fromkeys(names, 0.0)
    gradients = {name: flat.empty() for name in names}
    views = {name: flat.views(gradients[name]) for name in names}
    for each in passes:
        terms = each.loss(module, objective)
        for index, name in enumerate(names):
            totals[name] += float(terms[name].total.detach())
            keep = index + 1 < len(names)
            found = torch.autograd.grad(terms[name].total, flat.parameters, retain_graph=keep, allow_unused=True)
            _add(views[name], found, used)
    return totals, gradients


def _add(views: list[Tensor], found: Sequence[Tensor | None], used: set[int]) -> None:
    pairs = [(index, gradient) for index, gradient in enumerate(found) if gradient is not None]
    used.update(index for index, _ in pairs)
    torch._foreach_add_([views[index] for index, _ in pairs], [gradient for _, gradient in pairs])
