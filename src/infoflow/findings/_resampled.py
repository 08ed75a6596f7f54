"""Rows of curves for a claim's statistic: the estimate, each seed, and draws of other seeds and sentences.

A statistic is any function of a row. It uses curves averaged over seeds, as a figure shows them, so rows consist of
curves, and their effect on the statistic is determined afterwards (`infoflow.findings._interval`).
"""

# N draws, S seeds, R sentence replicates, P replicates that are also taken without each seed, K points of a curve

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from infoflow.foundation import means_without_each, seed_deviations, sentence_df, stream
from infoflow.results import Samples

NUM_DRAWS = 600
_NUM_APART = 600  # rows of replicates that leave out each seed


@dataclass(frozen=True, kw_only=True, eq=False)
class ResampledRows:
    """The role of each row.

    Draws are the estimate plus random sums of deviations, times the scale of Student's t: the seeds' deviations with S
    − 1 degrees of freedom, and the sentences' replicates with those of their bootstrap. For a linear statistic, such a
    draw has the distribution of its t interval for any number of seeds; for a ratio its percentiles form Fieller's
    interval. Draws come in mirrored pairs.
    """

    num_seeds: int
    num_replicates: int
    seed_weights_NS: np.ndarray  # empty with one seed
    sentence_weights_NR: np.ndarray

    @property
    def num_apart(self) -> int:
        """P: replicates that are also computed without each seed."""
        return 0 if self.num_seeds < 2 else min(self.num_replicates, max(2, _NUM_APART // self.num_seeds))

    @property
    def seeds(self) -> slice:
        """Each single seed."""
        return slice(1, 1 + self.num_seeds)

    @cached_property
    def _ends(self) -> list[int]:
        several = self.num_seeds > 1
        draws = len(self.sentence_weights_NR)
        sizes = [1 + self.num_seeds, self.num_seeds * several, draws * several, draws * several, draws]
        return np.cumsum([*sizes, self.num_replicates, self.num_seeds * self.num_apart]).tolist()

    @property
    def without_seed(self) -> slice:
        """The mean without each seed."""
        return slice(self._ends[0], self._ends[1])

    @property
    def seed_draws(self) -> slice:
        """Curves as other seeds might have given them."""
        return slice(self._ends[1], self._ends[2])

    @property
    def joint_draws(self) -> slice:
        """Curves as other seeds and other sentences might have given them."""
        return slice(self._ends[2], self._ends[3])

    @property
    def sentence_draws(self) -> slice:
        """Curves as other sentences might have given them."""
        return slice(self._ends[3], self._ends[4])

    @property
    def replicates(self) -> slice:
        """The mean in each sentence replicate."""
        return slice(self._ends[4], self._ends[5])

    @property
    def replicates_without_seed(self) -> slice:
        """The same without each seed, seed by seed."""
        return slice(self._ends[5], self._ends[6])


@lru_cache(maxsize=16)
def plan_rows(num_seeds: int, num_replicates: int, redraw: int = 0) -> ResampledRows:
    """The rows for these numbers of seeds and replicates; all claims share the draws, which `redraw` varies."""
    weights_NS = np.empty((0, num_seeds))
    if num_seeds > 1:
        weights_NS = _mirrored("seeds", num_seeds, num_seeds - 1, redraw)
    weights_NR = _mirrored("sentences", num_replicates, sentence_df(num_replicates), redraw)
    return ResampledRows(
        num_seeds=num_seeds,
        num_replicates=num_replicates,
        seed_weights_NS=weights_NS,
        sentence_weights_NR=weights_NR,
    )


def resampled_curves(estimates: Mapping[str, Samples], seeds: list[int], redraw: int = 0) -> tuple[dict, ResampledRows]:
    """Each reading as rows of curves, and the role of the rows."""
    rows = plan_rows(len(seeds), min(one.num_replicates for one in estimates.values()), redraw)
    return {name: _rows_of(one, seeds, rows) for name, one in estimates.items()}, rows


def _mirrored(name: str, num_deviations: int, df: float, redraw: int) -> np.ndarray:
    """Normal weights times the scale of Student's t, (N, deviations); the second half negates the first."""
    rng = stream("findings", name, num_deviations, *([redraw] if redraw else []))
    half = rng.standard_normal((NUM_DRAWS // 2, num_deviations))
    half *= np.sqrt(df / rng.chisquare(df, (NUM_DRAWS // 2, 1)))
    return np.concatenate([half, -half])


def _rows_of(one: Samples, seeds: list[int], rows: ResampledRows) -> np.ndarray:
    mean_1K = one.mean()
    noise_URK = one.noise(rows.num_replicates)
    noise_RK = noise_URK.mean(axis=0)
    by_sentence_NK = rows.sentence_weights_NR @ (noise_RK / np.sqrt(len(noise_RK) - 1))
    parts = [mean_1K, *(one.alone(seed) for seed in seeds)]
    if rows.num_seeds > 1:
        without_SU = means_without_each(one.units, seeds)
        without_SK = without_SU @ one.values_UK
        by_seed_NK = rows.seed_weights_NS @ seed_deviations(mean_1K, without_SK)
        parts += [without_SK, mean_1K + by_seed_NK, mean_1K + by_seed_NK + by_sentence_NK]
    parts += [mean_1K + by_sentence_NK, mean_1K + noise_RK]
    if rows.num_seeds > 1:
        apart_SPK = np.einsum("su,upk->spk", without_SU, noise_URK[:, : rows.num_apart])
        parts.append((without_SK[:, None] + apart_SPK).reshape(-1, mean_1K.shape[1]))
    return np.concatenate(parts)
