"""Numbers of each seed, with their bootstrap replicates."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ._model_group import Absent

# U units (a seed, or a pair of seeds), R sentence replicates, K numbers, such as the points of a curve


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Estimates:
    """A curve of K points for each unit.

    A unit is what one row of the underlying table belongs to: one seed, or two seeds where the number is a distance
    between two initialisations.
    """

    units: tuple[tuple[int, ...], ...]
    values_UK: np.ndarray
    replicates_URK: np.ndarray
    depth: int = 0  # the highest layer of a curve over layers
    sampled: bool = True  # whether there is a bootstrap over sentences behind the replicates

    @classmethod
    def of(cls, found: Mapping[tuple[int, ...], np.ndarray], depth: int = 0, sampled: bool = True) -> "Estimates":
        """Of each unit's numbers (1 + R, K), the estimate first; replicates are cut to their common number."""
        common = min(len(rows) for rows in found.values())
        rows_URK = np.stack([np.asarray(rows[:common]) for rows in found.values()])
        # Replicates of one point of a curve lie side by side, so that sums over them are exact to the last bit.
        by_point_UKR = np.ascontiguousarray(rows_URK[:, 1:].transpose(0, 2, 1)) if depth else None
        replicates_URK = rows_URK[:, 1:] if by_point_UKR is None else by_point_UKR.transpose(0, 2, 1)
        values_UK = rows_URK[:, 0]
        return cls(units=tuple(found), values_UK=values_UK, replicates_URK=replicates_URK, depth=depth, sampled=sampled)

    @property
    def seeds(self) -> set[int]:
        return {seed for unit in self.units for seed in unit}

    @property
    def num_replicates(self) -> int:
        return self.replicates_URK.shape[1]

    def only(self, seeds: set[int]) -> "Estimates":
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

    def noise(self, num_replicates: int) -> np.ndarray:
        """The first `num_replicates` less their mean, (U, R, K): the spread of the estimates over sentences.

        Not less the estimate: a plug-in measure (mutual information, PWCCA) is biased in a resample, which holds fewer
        distinct sentences. A number that a replicate lacks counts as the mean, and the others spread wider for it.
        """
        noise_URK = self.replicates_URK[:, :num_replicates]
        known_URK = np.isfinite(noise_URK)
        if known_URK.all():
            return noise_URK - noise_URK.mean(axis=1, keepdims=True)
        num_U1K = np.maximum(known_URK.sum(axis=1, keepdims=True), 1)
        mean_U1K = np.where(known_URK, noise_URK, 0.0).sum(axis=1, keepdims=True) / num_U1K
        return np.where(known_URK, noise_URK - mean_U1K, 0.0) * np.sqrt(noise_URK.shape[1] / num_U1K)

    def estimate(self) -> np.ndarray:
        """The mean over units, (1, K)."""
        return self.values_UK.mean(axis=0, keepdims=True)

    def alone(self, seed: int) -> np.ndarray:
        """The mean over the units that `seed` takes part in, (1, K)."""
        return self.values_UK[[seed in unit for unit in self.units]].mean(axis=0, keepdims=True)
