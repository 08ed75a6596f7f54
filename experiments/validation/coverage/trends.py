"""How often a slope over scale is covered by its interval, and how often a flat course is called a trend.

    python experiments/validation/coverage/trends.py [--draws 4000] [--out experiments/validation/coverage/trends.csv]

Runs at K scales, half a decade apart; each has seeds, drawn from a population, and sentences, which move its seeds
together. Effects and intervals are made as `infoflow.findings` makes them. `slope 0` is a flat truth whose distance to
the threshold is zero, so that nothing can be called flat: `false trend` counts the words grows and falls.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from infoflow.foundation import join_halves, sentence_df, stream, t_quantile
from infoflow.subjects.over_scale.claims import ScalePoint, scale_slope, scale_trend

SCALES = (3, 4, 6)
STEP = np.sqrt(10.0)
SENTENCE_DF = sentence_df(200)


@dataclass(frozen=True, kw_only=True)
class Noise:
    """What chance does to the runs."""

    name: str
    seed: float = 1.0  # deviation of one seed, at the largest scale
    sentence: float = 0.1  # of all seeds of a run together
    steeper: float = 1.0  # deviation of a seed at the smallest scale, in that at the largest
    same_sentences: bool = False  # at all scales
    middle: int = 3  # seeds of the scales between the ends
    ends: int = 3


NOISES = (
    Noise(name="seeds"),
    Noise(name="seeds, three times as wide at the smallest scale", steeper=3.0),
    Noise(name="seeds, two a scale", middle=2, ends=2),
    Noise(name="seeds, five a scale", middle=5, ends=5),
    Noise(name="seeds and sentences", sentence=0.6),
    Noise(name="sentences, others at each scale", seed=0.1, sentence=1.0),
    Noise(name="sentences, the same at all scales", seed=0.1, sentence=1.0, same_sentences=True),
    Noise(name="seeds, one between the ends", middle=1),
    Noise(name="seeds, one at every scale", middle=1, ends=1),
)


def points(noise: Noise, scales: int, slope: float, rng: np.random.Generator) -> Iterator[ScalePoint]:
    """The runs of one draw."""
    shared = rng.standard_normal()
    for place in range(scales):
        num = noise.ends if place in (0, scales - 1) else noise.middle
        deviation = noise.seed * noise.steeper ** (1 - place / (scales - 1))
        seeds = deviation * rng.standard_normal(num)
        moved = noise.sentence * (shared if noise.same_sentences else rng.standard_normal())
        sentence_error = noise.sentence * np.sqrt(rng.chisquare(SENTENCE_DF) / SENTENCE_DF)
        effect = slope * place * np.log10(STEP) + float(seeds.mean()) + moved
        seed_error = float(seeds.std(ddof=1) / np.sqrt(num)) if num > 1 else np.nan
        half = t_quantile(SENTENCE_DF) * sentence_error
        if num > 1:
            t_seeds = t_quantile(num - 1)
            half = float(
                join_halves(
                    np.array(t_seeds * seed_error), t_seeds, np.array(half), t_quantile(SENTENCE_DF), np.array(1.0)
                )
            )
        yield ScalePoint(
            size=3e5 * STEP**place,
            effect=effect,
            low=effect - half,
            high=effect + half,
            seeds=num,
            seed_error=seed_error,
            sentence_error=float(sentence_error),
        )


def cell(noise: Noise, scales: int, slope: float, draws: int) -> dict[str, object]:
    """One row of the table."""
    rng = stream("trend coverage", noise.name, scales, str(slope))
    covered, trends, right, widths = 0, 0, 0, []
    for _ in range(draws):
        drawn = list(points(noise, scales, slope, rng))
        found = scale_slope(drawn)
        mean = float(np.mean([point.effect for point in drawn]))
        word = scale_trend(found, effect=mean, threshold=mean, above=True).word
        covered += found.low <= slope <= found.high
        trends += word in ("grows", "falls")
        right += word == "grows"
        widths.append(found.high - found.low)
    return {
        "noise": noise.name,
        "scales": scales,
        "slope": slope,
        "draws": draws,
        "coverage": round(covered / draws, 4),
        "false trend": round(trends / draws, 4) if slope == 0 else np.nan,
        "called grows": round(right / draws, 4),
        "median width": round(float(np.median(widths)), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("trends.csv"))
    chosen = parser.parse_args()
    rows = []
    for noise in NOISES:
        for scales in SCALES:
            for slope in (0.0, 3.0):
                rows.append(cell(noise, scales, slope, chosen.draws))
                print(rows[-1], flush=True)
    pd.DataFrame(rows).to_csv(chosen.out, index=False)


if __name__ == "__main__":
    main()
