"""One measured curve, seed by seed, with its bootstrap replicates."""

from dataclasses import dataclass, replace

import numpy as np

# U units (a seed, or a pair of seeds), S seeds, R sentence replicates, K points of the curve, N draws


class Absent(Exception):
    """What a claim needs was not measured; the message says what, for the findings table."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Draws:
    """N bootstrap draws: how often each seed is drawn, and which sentence replicate is used."""

    counts_NS: np.ndarray
    sentence_N: np.ndarray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Panel:
    """A curve of K points for each unit.

    A unit is what one row of the underlying table belongs to: one seed, or two seeds where the number is a distance
    between two initialisations.
    """

    units: tuple[tuple[int, ...], ...]
    layers: tuple[int, ...]
    values_UK: np.ndarray
    replicates_URK: np.ndarray

    @property
    def seeds(self) -> set[int]:
        return {seed for unit in self.units for seed in unit}

    @property
    def num_replicates(self) -> int:
        return self.replicates_URK.shape[1]

    def only(self, seeds: set[int]) -> "Panel":
        """The units whose seeds are all among `seeds`.

        Raises:
            Absent: None is.
        """
        rows = [row for row, unit in enumerate(self.units) if seeds.issuperset(unit)]
        if not rows:
            raise Absent("no seed was measured in every table that the claim needs")
        return replace(
            self,
            units=tuple(self.units[row] for row in rows),
            values_UK=self.values_UK[rows],
            replicates_URK=self.replicates_URK[rows],
        )

    def recentred(self, num_replicates: int) -> "Panel":
        """The same with the first `num_replicates`, shifted so that the mean of each unit's is its estimate.

        A plug-in measure (mutual information, PWCCA) is biased in a resample, which holds fewer distinct sentences;
        replicates tell the spread of the estimate, not that bias.
        """
        replicates_URK = self.replicates_URK[:, :num_replicates]
        bias_U1K = replicates_URK.mean(axis=1, keepdims=True) - self.values_UK[:, None]
        return replace(self, replicates_URK=replicates_URK - bias_U1K)

    def estimate(self) -> np.ndarray:
        """The mean over units, (1, K)."""
        return self.values_UK.mean(axis=0, keepdims=True)

    def alone(self, seed: int) -> np.ndarray:
        """The mean over the units that `seed` takes part in, (1, K)."""
        return self.values_UK[[seed in unit for unit in self.units]].mean(axis=0, keepdims=True)

    def drawn(self, seeds: list[int], draws: Draws) -> np.ndarray:
        """The mean over the units of each draw, (N, K); NaN where a draw holds one seed only and units are pairs."""
        place = {seed: column for column, seed in enumerate(seeds)}
        columns_UA = np.array([[place[seed] for seed in unit] for unit in self.units])
        weights_NU = draws.counts_NS[:, columns_UA].prod(axis=2)
        total_N1 = weights_NU.sum(axis=1, keepdims=True).astype(float)
        total_N1[total_N1 == 0] = np.nan
        return np.einsum("nu,unk->nk", weights_NU / total_N1, self.replicates_URK[:, draws.sentence_N])
