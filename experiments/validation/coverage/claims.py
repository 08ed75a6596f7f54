"""How often the intervals and verdicts of claims are right, on simulated studies whose truth is known.

    python experiments/validation/coverage/claims.py [--studies 1000] [--out experiments/validation/coverage/claims.csv]

Each simulated study goes through `infoflow.findings.evaluate`; only its numbers are drawn instead of read. Seeds are
drawn from a population of runs; sentences in 64 blocks move all seeds together (half of their variance) and each seed
apart (the other half); replicates come from the weights that measures use. The threshold of every claim is the truth
itself, so that a claim that holds or fails there is wrongly decided. Cells that the file has are not run again.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pandas as pd

from infoflow.findings import (
    CORRELATION,
    SHARE,
    Condition,
    Control,
    Finding,
    Reading,
    SeedRows,
    Table,
    depth_correlation,
    evaluate,
    total_fall,
)
from infoflow.foundation import NUM_BLOCKS, NUM_REPLICATES, replicate_weights, stream
from infoflow.results import Spec

SEEDS = (2, 3, 5, 10)
REGIMES = {"seeds ≫ sentences": 10.0, "seeds ≈ sentences": 1.0, "seeds ≪ sentences": 0.1}  # ratio of their deviations
SHARED = 0.5  # of the sentences' variance, what moves all seeds together
WEIGHTS_RB = replicate_weights(NUM_REPLICATES) / NUM_BLOCKS

Curves = Mapping[str, np.ndarray]
Draw = Callable[[np.random.Generator, int, float, float], dict[str, pd.DataFrame]]
"""Tables of a study with so many seeds, whose numbers have these deviations by seed and by sentence."""

DRAWN = Spec("drawn")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of claim: how its curves come about, its statistic, and the true value."""

    name: str
    draw: Draw
    statistic: Callable[[Curves], np.ndarray]
    truth: float
    over: str = "all"
    bounds: tuple[float, float] | None = None
    of: int = 0
    least_seeds: int = 2

    def finding(self, tables: Mapping[str, pd.DataFrame], study: int) -> Finding:
        """The claim, read from the tables of this study."""
        reads = {name: reading(f"{name} {study}", table) for name, table in tables.items()}
        return Finding(
            id=f"simulated:{self.name}",
            claim="",
            source="",
            published="",
            statistic="",
            reads=reads,
            test=self.test,
            controls=(Control(name="none", reads=reads, transform=_undefined),),
            learned=(),
            minimum_seeds=1,
        )

    def test(self, curves: Curves) -> list[Condition]:
        values = self.statistic(curves)
        labels = [str(column) for column in range(values.shape[1])]
        return [
            Condition(
                name=self.name,
                values=values,
                labels=labels,
                threshold=self.truth,
                unit="",
                over=self.over,  # type: ignore[arg-type]
                bounds=self.bounds,
                of=self.of,
            )
        ]


def reading(name: str, table: pd.DataFrame) -> Reading:
    """Each seed's rows of a table, or each pair of seeds'."""
    if "seed" in table:
        return Table(name, DRAWN).reduce(_numbers)
    return Table(name, DRAWN, DRAWN, seeds="unordered").reduce(_numbers)


def _numbers(rows: SeedRows) -> np.ndarray:
    return rows.numbers


def _undefined(curves: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.full_like(curve, np.nan) for name, curve in curves.items()}


def sentences(rng: np.random.Generator, num: int, points: int, deviation: float) -> tuple[np.ndarray, np.ndarray]:
    """What the sentences do to `num` measurements, (num, points), and to their replicates, (num, R, points)."""
    shared, apart = np.sqrt(SHARED), np.sqrt(1 - SHARED)
    blocks = shared * rng.standard_normal((1, NUM_BLOCKS, points)) + apart * rng.standard_normal(
        (num, NUM_BLOCKS, points)
    )
    blocks *= deviation * np.sqrt(NUM_BLOCKS)
    return blocks.mean(axis=1), WEIGHTS_RB @ blocks


def seeds_of(rng: np.random.Generator, num: int, points: int, deviation: float) -> np.ndarray:
    """What the seeds do, (num, points): half of the variance is common to all points."""
    common, own = rng.standard_normal((num, 1)), rng.standard_normal((num, points))
    return deviation * (common + own) / np.sqrt(2)


def table_of(values_UK: np.ndarray, replicates_URK: np.ndarray, pairs: list[tuple[int, int]] | None = None):
    """A table with one row for each seed (or pair of them) and number."""
    num_U, num_K = values_UK.shape
    rows = {
        "value": values_UK.ravel(),
        "replicates": list(replicates_URK.transpose(0, 2, 1).reshape(num_U * num_K, -1)),
    }
    if pairs is None:
        return pd.DataFrame({"objective": DRAWN.name, "seed": np.repeat(np.arange(num_U), num_K), **rows})
    first, second = np.repeat(np.array(pairs), num_K, axis=0).T
    return pd.DataFrame(
        {"objective_a": DRAWN.name, "seed_a": first, "objective_b": DRAWN.name, "seed_b": second, **rows}
    )


def measured(truth: np.ndarray, by_seed: np.ndarray, noise: tuple[np.ndarray, np.ndarray], pairs=None) -> pd.DataFrame:
    return table_of(truth + by_seed + noise[0], (truth + by_seed)[:, None] + noise[1], pairs)


def curves_around(**truths: np.ndarray) -> Draw:
    """Each curve has its own seeds; sentences move points and curves independently."""

    def draw(rng: np.random.Generator, num: int, by_seed: float, by_sentence: float) -> dict[str, pd.DataFrame]:
        return {
            name: measured(
                truth,
                seeds_of(rng, num, len(truth), by_seed),
                sentences(rng, num, len(truth), by_sentence),
            )
            for name, truth in truths.items()
        }

    return draw


def pair_distances(rng: np.random.Generator, num: int, by_seed: float, by_sentence: float) -> dict[str, pd.DataFrame]:
    """Distances between the seeds of one objective (both seeds and each pair of them count), and between objectives."""
    pairs = list(combinations(range(num), 2))
    own = np.sqrt(0.5) * seeds_of(rng, num, 1, by_seed)
    each = np.array([own[a] + own[b] for a, b in pairs]) / np.sqrt(2) + np.sqrt(0.5) * seeds_of(
        rng, len(pairs), 1, by_seed
    )
    within = measured(np.array([0.3]), each, sentences(rng, len(pairs), 1, by_sentence), pairs)
    across = measured(np.array([0.5]), seeds_of(rng, num, 1, by_seed), sentences(rng, num, 1, by_sentence))
    return {"within": within, "across": across}


def heads_that_matter(share: float, of: int) -> Draw:
    """Shares of heads, a binomial number of each seed whose probability differs between seeds.

    Sentences make a head count or not: of each seed, binomially many more or fewer.
    """

    def draw(rng: np.random.Generator, num: int, by_seed: float, by_sentence: float) -> dict[str, pd.DataFrame]:
        size = 1 / max(by_seed, 0.01) ** 2  # beta-binomial
        chance = rng.beta(share * size, (1 - share) * size, num) if by_seed > 0.02 else np.full(num, share)
        counted = rng.binomial(of, chance)[:, None] / of
        noise, replicates = sentences(rng, num, 1, by_sentence)
        if by_sentence == 0:
            replicates = np.zeros_like(replicates)
        values = np.clip(np.round((counted + noise) * of) / of, 0, 1)
        drawn = np.clip(np.round((counted[:, None] + noise[:, None] + replicates - noise[:, None]) * of) / of, 0, 1)
        return {"share": table_of(values, drawn)}

    return draw


STEPS = np.array([2.0, 1.8, 1.6, 1.4, 1.2, 1.0, 0.8])
TURNED = np.array([2.0, 1.8, 1.2, 1.4, 1.6, 1.0, 0.8])  # Spearman .857 with depth
NEAR = np.array([2.0, 1.8, 1.42, 1.4, 1.38, 1.0, 0.8])
TIED = np.array([1.0, 1.3, 1.01, 1.02, 1.5, 1.005])
TIES = np.full(10, 1.0)
APART = np.array([1.0, 1.6, 1.9, 2.4, 2.9, 3.0])

KINDS = (
    Kind(
        name="total fall",
        draw=curves_around(curve=STEPS),
        statistic=lambda c: total_fall(c["curve"]),
        truth=1.2,
    ),
    Kind(
        name="difference of objectives",
        draw=curves_around(one=STEPS, other=0.5 * STEPS),
        statistic=lambda c: total_fall(c["one"]) - total_fall(c["other"]),
        truth=0.6,
    ),
    Kind(
        name="all of 6 layers, one weakest",
        draw=curves_around(curve=APART),
        statistic=lambda c: c["curve"],
        truth=1.0,
    ),
    Kind(
        name="all of 6 layers, four nearly tied",
        draw=curves_around(curve=TIED),
        statistic=lambda c: c["curve"],
        truth=1.0,
    ),
    Kind(name="all of 10 layers, tied", draw=curves_around(curve=TIES), statistic=lambda c: c["curve"], truth=1.0),
    Kind(
        name="any of 6 layers, one strongest",
        draw=curves_around(curve=-APART),
        statistic=lambda c: c["curve"],
        truth=-1.0,
        over="any",
    ),
    Kind(
        name="any of 10 layers, tied",
        draw=curves_around(curve=TIES),
        statistic=lambda c: c["curve"],
        truth=1.0,
        over="any",
    ),
    Kind(
        name="rank correlation of 1",
        draw=curves_around(curve=STEPS),
        statistic=lambda c: -depth_correlation(c["curve"]),
        truth=1.0,
        bounds=CORRELATION,
    ),
    Kind(
        name="rank correlation of .86",
        draw=curves_around(curve=TURNED),
        statistic=lambda c: -depth_correlation(c["curve"]),
        truth=0.8571428571428571,
        bounds=CORRELATION,
    ),
    Kind(
        name="rank correlation of 1, three layers nearly tied",
        draw=curves_around(curve=NEAR),
        statistic=lambda c: -depth_correlation(c["curve"]),
        truth=1.0,
        bounds=CORRELATION,
    ),
    Kind(
        name="rank correlation of .86, three layers nearly tied",
        draw=curves_around(curve=NEAR[[0, 1, 4, 3, 2, 5, 6]]),
        statistic=lambda c: -depth_correlation(c["curve"]),
        truth=0.8571428571428571,
        bounds=CORRELATION,
    ),
    Kind(
        name="ratio of totals",
        draw=curves_around(one=STEPS, other=0.5 * STEPS),
        statistic=lambda c: total_fall(c["one"]) / total_fall(c["other"]),
        truth=2.0,
    ),
    Kind(
        name="distance between seeds",
        draw=pair_distances,
        statistic=lambda c: c["within"],
        truth=0.3,
        least_seeds=3,
    ),
    Kind(
        name="distance between objectives less that between seeds",
        draw=pair_distances,
        statistic=lambda c: c["across"] - c["within"],
        truth=0.2,
        least_seeds=3,
    ),
    Kind(
        name="share of 48 heads, .3",
        draw=heads_that_matter(0.3, 48),
        statistic=lambda c: c["share"],
        truth=0.3,
        bounds=SHARE,
        of=48,
    ),
    Kind(
        name="share of 48 heads, .02",
        draw=heads_that_matter(0.02, 48),
        statistic=lambda c: c["share"],
        truth=0.02,
        bounds=SHARE,
        of=48,
    ),
)

TOGETHER = 50  # studies in one call
SCALE = 0.05  # the larger of the two deviations


def cell(kind: Kind, num_seeds: int, regime: str, num_studies: int) -> dict[str, object]:
    """Coverage and wrong verdicts of one kind of claim, over simulated studies."""
    ratio = REGIMES[regime]
    by_seed, by_sentence = (SCALE, SCALE / ratio) if ratio >= 1 else (SCALE * ratio, SCALE)
    rng = stream("coverage", "claims", kind.name, num_seeds, regime)
    parts = []
    for start in range(0, num_studies, TOGETHER):
        drawn = [kind.draw(rng, num_seeds, by_seed, by_sentence) for _ in range(min(TOGETHER, num_studies - start))]
        tables = {f"{name} {study}": table for study, own in enumerate(drawn) for name, table in own.items()}
        parts.append(evaluate(tables, [kind.finding(own, study) for study, own in enumerate(drawn)]))
    found = pd.concat(parts)
    low, high, verdicts = found["low"].to_numpy(), found["high"].to_numpy(), list(found["verdict"])
    return {
        "claim": kind.name,
        "seeds": num_seeds,
        "regime": regime,
        "studies": num_studies,
        "coverage": float(np.mean((low <= kind.truth + 1e-12) & (kind.truth - 1e-12 <= high))),
        "false_holds": verdicts.count("holds") / num_studies,
        "false_fails": verdicts.count("fails") / num_studies,
        "median_width": float(np.median(high - low)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=1000)
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    asked = parser.parse_args()
    rows = pd.read_csv(asked.out).to_dict("records") if asked.out.exists() else []
    done = {(row["claim"], row["seeds"], row["regime"]) for row in rows}
    for kind, num_seeds, regime in product(KINDS, asked.seeds, REGIMES):
        if (kind.name, num_seeds, regime) in done or num_seeds < kind.least_seeds or asked.only not in kind.name:
            continue
        rows.append(cell(kind, num_seeds, regime, asked.studies))
        pd.DataFrame(rows).round(4).to_csv(asked.out, index=False)
        sys.stdout.write(f"{rows[-1]}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
