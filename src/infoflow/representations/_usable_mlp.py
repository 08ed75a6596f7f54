"""Usable information by a probe with one hidden layer: all layers and both folds are trained as one problem."""

# P probe (sets x layers, set by set), B batch, D width, K label

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from infoflow.flow import Regime, TokenSample
from infoflow.foundation import UserError, stream
from infoflow.results import TableSchema

from ._gaussian_classifier import LabelledMoments
from ._stacked import Schedule, mlp_logits, mlp_parameters, train_stacked
from ._usable_information import UsableEstimate, UsableInformation, usable_columns

_SCHEDULE = Schedule(rate=1e-2, patience=2)  # 3e-3 needs twice as many epochs for the same cross-entropy
_DECAYS = (0.0, 1e-3)  # factors of the sum of squared weights, which is added to the loss
_BATCH = 256
_LEAST_STEPS = 32  # steps between two evaluations on the held-back tokens
_PART = 1 << 24  # bytes of logits held at a time when probes only predict
_RIDGE = 1e-2  # of the median variance of a principal axis, as in the Gaussian classifier

USABLE_INFORMATION_MLP = TableSchema(
    name="usable_information_mlp",
    description="What a probe with one hidden layer, trained on other sentences, can read about the token from a "
    "layer's states, in nats: entropy of the tokens minus the probe's cross-entropy. A lower bound, as "
    "`usable_information` is for a linear reader. Compare rows of equal types and count.",
    columns=usable_columns("the choice of sentences, the probe's initial weights"),
)


class UsableInformationMLP(UsableInformation):
    """The information in a layer's states that a probe with one hidden layer can use: `UsableInformation` for a wider
    family of readers, on the same tokens.

    For each half of the sentences and each layer, a probe with rectified linear units is trained on seven eighths of
    that half, until its cross-entropy on the last eighth stops falling, and scored on the other half. The last eighth
    also decides between no weight decay, which suits the input token, and a weight decay that suits the token to
    predict. Its inputs are the states, whitened within labels, so that a large component that is independent of the
    token changes nothing. The probe starts from the labels' frequencies, and stays there if training does not improve
    on them. Labels that occur in no fitted token share the Good–Turing probability of unseen labels.

    Args:
        types: Number of most frequent token types.
        occurrences: At most this many sampled tokens, half of which train a probe.
        regime: `"clean"`: unmodified text; `"training"`: masked as in training.
        hidden: Hidden units.
        seeds: Number of initialisations to average over; with one, intervals do not cover their choice.

    Source: [@xu2020usable], [@pimentel2020information]; [@good1953].
    """

    table: ClassVar[TableSchema] = USABLE_INFORMATION_MLP

    def __init__(
        self, types: int = 1000, occurrences: int = 50_000, regime: Regime = "clean", hidden: int = 128, seeds: int = 2
    ) -> None:
        super().__init__(types, occurrences, regime)
        for name, number in (("hidden", hidden), ("seeds", seeds)):
            if number < 1:
                raise UserError(f"{name} must be at least 1. Got {number}.")
        self.hidden, self.seeds = hidden, seeds

    def estimates(self, sample: TokenSample, labels: Int[np.ndarray, " token"]) -> Iterator[UsableEstimate]:
        states = torch.from_numpy(np.stack([sample.states(layer) for layer in range(sample.num_states)]))
        yield from usable_by_mlp(states, labels, sample.blocks, self.hidden, self.seeds)


def usable_by_mlp(
    states: Float[Tensor, "layer token width"],
    labels: Int[np.ndarray, " token"],
    blocks: Int[np.ndarray, " token"],
    hidden: int = 128,
    seeds: int = 2,
) -> list[UsableEstimate]:
    """Usable information of each layer, for probes with one hidden layer; labels are 0..K−1.

    Each fold trains a probe per seed, one on half of the sentences, and one on shuffled labels.
    """
    sets = [one for fold in (0, 1) for one in _sets(fold, blocks, seeds)]
    with torch.inference_mode(False):
        found = _Problem.of(states, labels, sets).scores(hidden)
    by_kind = {kind: _joined(found, [each.kind == kind and not each.decay for each in sets]) for kind in _KINDS}
    spread = by_kind["whole"].mean(2).std(0, ddof=1) if seeds > 1 else np.zeros(1)
    return [
        UsableEstimate.of(
            labels,
            blocks,
            by_kind["whole"][:, layer].mean(0),
            at_half=float(by_kind["half"][:, layer].mean()),
            shuffled=float(by_kind["shuffled"][:, layer].mean()),
            of_seed=float(np.sqrt(np.mean(spread**2) / seeds)),
        )
        for layer in range(len(states))
    ]


def _joined(scores: Float[np.ndarray, "set layer token"], chosen: list[bool]) -> Float[np.ndarray, "seed layer token"]:
    """Both folds joined: each has scores for the other's tokens, and 0 for its own."""
    first, second = np.split(scores[chosen], 2)
    return first + second


class _Set(NamedTuple):
    """The tokens on which one probe is trained, in every layer."""

    kind: Literal["whole", "half", "shuffled"]
    seed: int
    decay: float
    train: Int[np.ndarray, " _"]
    dev: Int[np.ndarray, " _"]
    scored: Int[np.ndarray, " _"]


_KINDS = ("whole", "half", "shuffled")


def _sets(fold: int, blocks: Int[np.ndarray, " token"], seeds: int) -> Iterator[_Set]:
    """The probes of one fold: every other block is used for fitting, and every eighth of these is held back."""
    place = np.unique(blocks, return_inverse=True)[1]
    own, number = place % 2 == fold, place // 2
    train, dev, scored = (np.flatnonzero(each) for each in (own & (number % 8 != 0), own & (number % 8 == 0), ~own))
    half = train[np.unique(number[train], return_inverse=True)[1] % 2 == 0]
    for decay in _DECAYS:
        for seed in range(seeds):
            yield _Set("whole", seed, decay, train, dev, scored)
        yield _Set("half", 0, decay, half, dev, scored)
    yield _Set("shuffled", 0, 0.0, train, dev, scored)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Problem:
    """The training problem of all probes; a probe's index encodes its layer and set."""

    states: Float[Tensor, "layer token width"]
    labels: Int[Tensor, "set token"]
    sets: Sequence[_Set]
    mean: Float[Tensor, "probe 1 width"]
    whitening: Float[Tensor, "probe width width"]
    log_share: Float[Tensor, "set label"]
    """Log-frequencies among the fitted tokens; minus infinity for labels without any."""
    unseen: Float[Tensor, " set"]  # total probability of the labels without a fitted token; 0 if there are none

    @classmethod
    def of(cls, states: Tensor, labels: Int[np.ndarray, " token"], sets: Sequence[_Set]) -> "_Problem":
        shuffled = np.random.default_rng(0).permutation(labels)
        own = torch.from_numpy(np.stack([shuffled if one.kind == "shuffled" else labels for one in sets]))
        moments: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        plain, num_labels = torch.from_numpy(labels), int(labels.max()) + 1
        for one in sets:
            for layer in range(len(states)):
                if (key := (id(one.train), layer)) not in moments:
                    known = LabelledMoments.of(states[layer][one.train], plain[one.train], num_labels)
                    model = known.classifier(_RIDGE)
                    spread = ((states[layer][one.train] - model.mean) @ model.whitening).square().mean().sqrt()
                    moments[key] = model.mean[None], model.whitening / spread.clamp(min=1e-30)
        places = [moments[id(one.train), layer] for one in sets for layer in range(len(states))]
        counts = torch.stack(
            [
                torch.bincount(each[one.train], minlength=num_labels).double()
                for one, each in zip(sets, own, strict=True)
            ]
        )
        once = (counts == 1).sum(1) / counts.sum(1)
        return cls(
            states=states,
            labels=own,
            sets=sets,
            mean=torch.stack([mean for mean, _ in places]),
            whitening=torch.stack([whitening for _, whitening in places]),
            log_share=(counts / counts.sum(1, keepdim=True)).log().float(),
            unseen=torch.where((counts == 0).any(1), once.clamp(1 / counts.sum(1), torch.tensor(0.5)), 0.0).float(),
        )

    def scores(self, hidden: int) -> Float[np.ndarray, "set layer token"]:
        """Train all probes, and score the tokens of the other half with the best probe of each kind, seed and layer.

        Scores are 0 elsewhere. Probes with weight decay replace those without where they are better, and have no scores
        of their own.
        """
        layers, width, num_labels = len(self.states), self.states.shape[2], self.log_share.shape[1]
        start = mlp_parameters("usable-mlp", [one.seed for one in self.sets], layers, (width, hidden, num_labels))
        start[2].zero_()
        start[3] = self.log_share.repeat_interleave(layers, dim=0)[:, None].clone()
        trained = train_stacked(start, self._batches, self._loss, self._on_dev, _SCHEDULE)
        every = torch.arange(len(self.mean)).view(-1, layers)
        chance, dev = (self._on_dev(each, every.flatten()).view(-1, layers) for each in (start, trained))
        scores = np.zeros((len(self.sets), layers, self.states.shape[1]))
        for index, one in enumerate(self.sets):
            if one.decay:
                continue
            rivals = [i for i, each in enumerate(self.sets) if each[:2] == one[:2] and each.scored is one.scored]
            least, best = dev[rivals].min(0)
            best = every[rivals].gather(0, best[None])[0]
            better = (least < chance[index]).view(-1, 1, 1)
            own = [torch.where(better, a[best], b[every[index]]) for a, b in zip(trained, start, strict=True)]
            rows = torch.from_numpy(one.scored).expand(layers, -1)
            found = torch.cat(list(self._log_probabilities(own, every[index], rows)), 1)
            scores[index][:, one.scored] = found.numpy()
        return scores

    def _batches(self, epoch: int) -> Iterator[Int[Tensor, "set batch"]]:
        """The tokens of each set in random order, in equally many batches; tokens of small sets are repeated."""
        steps = max(_LEAST_STEPS, math.ceil(max(len(one.train) for one in self.sets) / _BATCH))
        orders = [
            np.resize(stream("usable-mlp-order", one.seed, epoch).permutation(one.train), steps * _BATCH)
            for one in self.sets
        ]
        yield from torch.from_numpy(np.stack(orders)).split(_BATCH, dim=1)

    def _set(self, probes: Int[Tensor, " probe"]) -> Int[Tensor, " probe"]:
        return probes // len(self.states)

    def _logits(self, parameters: Sequence[Tensor], probes: Tensor, rows: Int[Tensor, "probe batch"]) -> Tensor:
        layer = probes % len(self.states)
        states = self.states[layer[:, None], rows] - self.mean[probes]
        return mlp_logits(parameters, states @ self.whitening[probes])

    def _loss(self, parameters: Sequence[Tensor], probes: Tensor, batch: Int[Tensor, "set batch"]) -> Tensor:
        rows = batch[self._set(probes)]
        own = self.labels[self._set(probes)[:, None], rows]
        logits = self._logits(parameters, probes, rows)
        decay = torch.tensor([one.decay for one in self.sets])[self._set(probes)]
        penalty = decay * sum(weights.square().sum((1, 2)) for weights in parameters[::2])
        return functional.cross_entropy(logits.mT, own, reduction="none").mean(1) + penalty

    def _log_probabilities(
        self, parameters: Sequence[Tensor], probes: Tensor, rows: Int[Tensor, "probe token"]
    ) -> Iterator[Float[Tensor, "probe part"]]:
        """The log-probability of each token's own label, for a part of the tokens at a time."""
        of_set = self._set(probes)
        unseen, num_unseen = self.unseen[of_set][:, None], self.log_share.isinf().sum(1)[of_set][:, None]
        for part in rows.split(max(1, _PART // (4 * len(probes) * self.log_share.shape[1])), dim=1):
            own = self.labels[of_set[:, None], part]
            logits = self._logits(parameters, probes, part).log_softmax(2)
            seen = logits.gather(2, own[:, :, None])[:, :, 0] + (1 - unseen).log()
            new = (unseen / num_unseen.clamp(min=1)).log()
            yield torch.where(self.log_share[of_set[:, None], own].isinf(), new, seen)

    def _on_dev(self, parameters: Sequence[Tensor], probes: Tensor) -> Float[Tensor, " probe"]:
        """Cross-entropy on the tokens held back."""
        least = min(len(one.dev) for one in self.sets)
        dev = torch.from_numpy(np.stack([one.dev[:least] for one in self.sets]))
        parts = self._log_probabilities(parameters, probes, dev[self._set(probes)])
        return -torch.cat(list(parts), 1).mean(1)
