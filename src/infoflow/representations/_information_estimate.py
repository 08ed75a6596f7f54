"""Mutual information corrected for small samples: for unseen pairs, then extrapolated to infinitely many tokens."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int
from scipy.special import ndtri
from torch import Tensor

from infoflow.foundation import NUM_BLOCKS, Interval, Scale, block_interval, bounds_of, replicate_weights, stream
from infoflow.results import estimate, linear_replicates

from ._clusters import FOLDS, cluster, nearest
from ._entropy import BlockCounts


def standard_noise(num: int, *key: str | int) -> Float[np.ndarray, " replicate"]:
    """Replicates of an error that does not depend on the choice of sentences; equal keys give equal replicates.

    Their mean is exactly 0 and their standard deviation exactly 1. They are linear in the weights of
    `replicate_weights`, as if the error came from blocks of sentences. Intervals of differences and means compute the
    effects of blocks from replicates (`block_effects`), and would lose most of an error that has no such effects.
    """
    shares = replicate_weights(num) - 1
    effects = stream(*key).standard_normal(NUM_BLOCKS)
    drift = shares.mean(axis=0)  # direction of the effects that would move the mean
    noise = shares @ (effects - drift * (effects @ drift) / (drift @ drift))
    return noise / noise.std()


def wider(ends: Interval, value: float, further: float, scale: Scale = "any") -> Interval:
    """The interval widened by an independent error whose 95 % interval has the half width `further`."""
    low, high = value - np.hypot(value - ends.low, further), value + np.hypot(ends.high - value, further)
    least, most = bounds_of(scale)
    return Interval(float(max(low, min(value, least))), float(min(high, max(value, most))))


HALVINGS = 5
"""Number of sample sizes: all tokens, a half, ... a sixteenth; thirty-seconds are used for extrapolation only."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class InformationEstimate:
    """Mutual information of two labellings, in nats, and its dependence on the number of tokens."""

    by_size: Float[np.ndarray, " size"]
    """The estimate from a sixteenth, an eighth, a quarter, a half and all of the sentences; means over such parts."""
    plug_in_by_size: Float[np.ndarray, " size"]
    sizes: Float[np.ndarray, " size"]  # mean number of tokens in a part
    without_block: Float[np.ndarray, " block"]  # the estimate from all sentences but those of each bootstrap block
    tail: float  # the bias that unseen labels and cells may leave in the value, in nats: positive if it is too high
    optimism: float = 0.0
    """Half the excess of information on states that centres were fitted to, as a standard error in nats."""

    @property
    def value(self) -> float:
        return float(self.by_size[-1])

    @property
    def plug_in(self) -> float:
        return float(self.plug_in_by_size[-1])

    @property
    def drift(self) -> float:
        """Possible remaining bias, as a standard error.

        This is the difference from the value on half of the sentences or, if larger, the bias of the tail. It is
        negative if more tokens would give a lower value.
        """
        last_step = float(np.nan_to_num(self.value - self.by_size[-2]))
        return max(last_step, -self.tail, key=abs)

    def columns(self, baseline: float, count: float, units: int | None = None) -> dict[str, Any]:
        """The estimate columns (`estimate`).

        The interval covers the choice of sentences, possible remaining bias, and the fit of centres to the states.
        """
        ends = block_interval(self.value, self.value - self.without_block, units=units)
        ends = wider(ends, self.value, float(np.hypot(self.drift, self.optimism) * ndtri(0.975)))
        replicates = linear_replicates(self.value, self.without_block)
        replicates += bias_draws(self.drift, len(replicates))
        replicates += self.optimism * standard_noise(len(replicates), "information-optimism")
        return estimate(self.value, replicates, baseline, count, ends=ends)


def bias_draws(drift: float, num: int) -> Float[np.ndarray, " replicate"]:
    """The bias in each replicate: one draw for all estimates.

    All estimates share it, because neighbouring layers, and models of the same tokens, have similar biases.
    """
    return drift * standard_noise(num, "information-bias")


def corrected_information(
    a: Int[np.ndarray, " token"], b: Int[np.ndarray, " token"], blocks: Int[np.ndarray, " token"]
) -> float:
    """The value of `estimate_information` without its interval, in a fifth of the time."""
    counts = _Joint.of(a, b, blocks)
    halves = np.array([counts.within(part).information() for part in _parts(1)])
    return float(_extrapolated(np.array([counts.information()]), halves)[0])


def optimism_of(
    a: Int[np.ndarray, " token"],
    b: Int[np.ndarray, " token"],
    blocks: Int[np.ndarray, " token"],
    own: Bool[np.ndarray, " token"],
) -> float:
    """Half of (information on tokens that centres were fitted to, minus that on the others); 0 if either is empty."""
    if own.all() or not own.any():
        return 0.0
    on_own, on_other = (corrected_information(a[at], b[at], blocks[at]) for at in (own, ~own))
    return float(np.nan_to_num(on_own - on_other)) / 2


def estimate_information(
    a: Int[np.ndarray, " token"], b: Int[np.ndarray, " token"], blocks: Int[np.ndarray, " token"]
) -> InformationEstimate:
    r"""Mutual information of integer labels, corrected for the number of tokens.

    $$ \hat I = 2\,\hat I_N - \tfrac12(\hat I_{N/2} + \hat I'_{N/2}) $$

    Here $\hat I_N$ uses the entropies of Chao, Wang and Jost [@chao2013], and each half has half of the bootstrap
    blocks (whole sentences). The remaining bias is about proportional to 1/N, and is extrapolated to 0 [@strong1998].
    If a half is empty, the estimate is $\hat I_N$. On joint counts of clusters and tokens of trained models it needs a
    tenth of the tokens that the plug-in and Miller–Madow estimates need, and fewer than quadratic extrapolation of the
    plug-in estimate (`experiments/validation/information`).

    With Zipf's law the bias falls more slowly than 1/N, so halves underestimate it. `CountSums.tail` bounds the rest
    from the share of unseen pairs, and `drift` adds it to intervals.

    Args:
        a: (token,) integers from 0.
        b: (token,) integers from 0.
        blocks: (token,) bootstrap block of each token's sentence, 0..63.
    """
    counts = _Joint.of(a, b, blocks)
    # A part's counts are freed before the next ones are computed, because together they are six times the whole.
    looks = [np.array([counts.within(part).look() for part in _parts(level)]).T for level in range(HALVINGS + 1)]
    raw = [information for information, _, _ in looks]
    extrapolated = [np.nanmean(_extrapolated(raw[level], raw[level + 1])) for level in range(HALVINGS)]
    return InformationEstimate(
        by_size=np.array(extrapolated[::-1]),
        plug_in_by_size=np.array([np.nanmean(plug_in) for _, plug_in, _ in looks[HALVINGS - 1 :: -1]]),
        sizes=np.array([np.mean(sizes) for _, _, sizes in looks[HALVINGS - 1 :: -1]]),
        without_block=_without_each(counts, raw[1]),
        tail=counts.tail(),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Joint:
    """Counts of both labellings and of their pairs."""

    a: BlockCounts
    b: BlockCounts
    cells: BlockCounts

    @classmethod
    def of(cls, a: np.ndarray, b: np.ndarray, blocks: np.ndarray) -> "_Joint":
        cells = a.astype(np.int64) * (int(b.max(initial=0)) + 1) + b
        return cls(*(BlockCounts.of(labels, blocks) for labels in (a, b, cells)))

    def within(self, blocks: Bool[np.ndarray, " block"]) -> "_Joint":
        return self if blocks.all() else _Joint(*(each.within(blocks) for each in (self.a, self.b, self.cells)))

    def look(self) -> tuple[float, float, int]:
        """The corrected information, the plug-in estimate, and the number of tokens."""
        a, b, cells = (each.sums() for each in (self.a, self.b, self.cells))
        return self.information(), float(a.plug_in + b.plug_in - cells.plug_in), int(self.a.count.sum())

    def information(self) -> float:
        a, b, cells = (each.sums().chao_wang_jost for each in (self.a, self.b, self.cells))
        return float(a + b - cells)

    def tail(self) -> float:
        """The larger of two biases: unseen pairs raise the information, unseen labels of either kind lower it."""
        a, b, cells = (float(each.sums().tail) for each in (self.a, self.b, self.cells))
        # Information is not negative, so it cannot be too high by more than itself.
        too_high, too_low = min(cells, max(self.information(), 0.0)), a + b
        return too_high if too_high >= too_low else -too_low

    def information_without_each(self) -> Float[np.ndarray, " block"]:
        a, b, cells = (each.sums_without_each().chao_wang_jost for each in (self.a, self.b, self.cells))
        return a + b - cells


def _parts(level: int) -> list[Bool[np.ndarray, " block"]]:
    """The blocks split into 2^level parts."""
    return list(np.arange(NUM_BLOCKS) * 2**level // NUM_BLOCKS == np.arange(2**level)[:, None])


def _extrapolated(whole: Float[np.ndarray, " part"], halves: Float[np.ndarray, " half"]) -> Float[np.ndarray, " part"]:
    """Extrapolates each part from its two halves; the part's own value if a half is empty."""
    both = halves.reshape(-1, 2).mean(axis=1)
    return np.where(np.isfinite(both), 2 * whole - both, whole)


def _without_each(counts: _Joint, of_halves: Float[np.ndarray, " half"]) -> Float[np.ndarray, " block"]:
    whole = counts.information_without_each()
    if not np.isfinite(of_halves).all():
        return whole
    first = np.arange(NUM_BLOCKS) < NUM_BLOCKS // 2
    changed = [counts.within(part).information_without_each() for part in _parts(1)]
    mean = np.where(first, changed[0] + of_halves[1], changed[1] + of_halves[0]) / 2
    return np.where(np.isfinite(mean), 2 * whole - mean, whole)


@dataclass(frozen=True, slots=True, eq=False)
class HalvedClusters:
    """Two clusterings of all states, one fitted to the even bootstrap blocks, one to the odd ones.

    Centres also fit the noise of their own states. The difference in information between blocks that a clustering was
    fitted to and the other blocks shows how much (`InformationEstimate.optimism`).
    """

    labels: Int[np.ndarray, "clustering token"]
    blocks: Int[np.ndarray, " token"]

    @classmethod
    def fitted(
        cls, states: Float32[Tensor, "token width"], clusters: int, blocks: Int[np.ndarray, " token"], seed: int = 0
    ) -> "HalvedClusters":
        """At most `clusters` clusters, and at most one for each state of a half."""
        halves = [np.flatnonzero(blocks % FOLDS == fold) for fold in range(FOLDS)]
        if min(map(len, halves)) < 2:  # the states of a single text
            halves = [np.arange(len(blocks))] * FOLDS
        num = min(clusters, *map(len, halves))
        centres = [cluster(states[torch.from_numpy(half)], num, seed).centres for half in halves]
        return cls(np.stack([nearest(states, each).labels.numpy() for each in centres]), blocks)

    def of(self, rows: Int[np.ndarray, " chosen"]) -> "HalvedClusters":
        """The same clusterings, restricted to `rows`."""
        return HalvedClusters(self.labels[:, rows], self.blocks[rows])

    def corrected(self, tokens: Int[np.ndarray, " token"]) -> float:
        """The information about tokens, averaged over both clusterings and corrected for the number of tokens."""
        return float(np.mean([corrected_information(own, tokens, self.blocks) for own in self.labels]))

    def estimate(self, tokens: Int[np.ndarray, " token"]) -> InformationEstimate:
        """The information about tokens, averaged over both clusterings."""
        found = [estimate_information(own, tokens, self.blocks) for own in self.labels]
        names = [field.name for field in fields(InformationEstimate) if field.name != "optimism"]
        means = {name: np.mean([getattr(each, name) for each in found], axis=0) for name in names}
        means["tail"] = float(means["tail"])
        gains = [
            optimism_of(own, tokens, self.blocks, self.blocks % FOLDS == fold) for fold, own in enumerate(self.labels)
        ]
        return InformationEstimate(**means, optimism=float(np.mean(gains)))
