"""How much do statistics of sampled states depend on the size of the sample? Values of disjoint samples of every size.

    python experiments/validation/coverage/size_bias.py --runs runs/coverage     # writes size_bias.csv beside this file

The model is the causal LM of measures.py. A minute or two of one core.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd

import infoflow
from infoflow import representations as of
from infoflow.flow import SampleMeasure, SampleRequest, TokenSample
from infoflow.foundation import make_display, use_display
from infoflow.heads import Entropy
from infoflow.results import TableSchema

HERE = Path(__file__).parent
POOL = "grammar:24000"
SIZES = (100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)
MOST_SAMPLES = 10  # disjoint samples of a size
PAIRS_AT_MOST = 5000  # rows of statistics whose time grows with the square
LOWER, UPPER = 1, 2  # the layers that are compared
LENGTHS = ((3, 6), (7, 9), (10, 12), (13, 16), (17, 24))  # words of a sentence

Sample = tuple[np.ndarray, np.ndarray, np.ndarray]  # states of two layers, token of each row


class States(SampleMeasure):
    """Hands out the states of the token sample, in sampling order: its beginning is a smaller sample."""

    table: ClassVar[TableSchema] = TableSchema(name="states", version=1, description="nothing", columns=())

    def __init__(self) -> None:
        self.request = SampleRequest(occurrences=SIZES[-1])

    def compute(self, sample: TokenSample) -> pd.DataFrame:
        FOUND.append((sample.states(LOWER).copy(), sample.states(UPPER).copy(), sample.occurrences.token.copy()))
        return pd.DataFrame()


FOUND: list[Sample] = []

STATISTICS: dict[str, Callable[[Sample], float]] = {
    "1 - PWCCA": lambda s: 1 - of.pwcca(s[0], s[1]),
    "1 - SVCCA": lambda s: 1 - of.svcca(s[0], s[1]),
    "CKA": lambda s: of.linear_cka(s[0], s[1]),
    "CKA, debiased": lambda s: of.linear_cka(s[0], s[1], debiased=True),
    "Procrustes angle": lambda s: of.procrustes_distance(s[0], s[1]),
    "average similarity": lambda s: of.average_similarity(s[1]),
}
OF_PAIRS: dict[str, Callable[[Sample], float]] = {
    "RSA": lambda s: of.rsa(s[0], s[1]),
    "intrinsic dimension": lambda s: of.two_nn_dimension(s[1]),
    "identity neighbours, k = 10": lambda s: of.neighbour_agreement(s[1], s[2], k=10, few="cap"),
    "identity neighbours, k = 1 % of n": lambda s: of.neighbour_agreement(s[1], s[2], k=len(s[1]) // 100, few="cap"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/coverage"))
    options = parser.parse_args()
    with use_display(make_display("silent")):
        model = infoflow.load_model(str(options.runs / "causal-lm" / "models" / "causal-lm" / "seed-0"))
        pool = infoflow.load_corpus(POOL)
        infoflow.measure(model, pool, [States()])
        rows = [*by_size(FOUND[0]), *by_length(model, pool)]
    pd.DataFrame(rows).to_csv(HERE / "size_bias.csv", index=False, float_format="%.5g")


def by_size(whole: Sample) -> Iterator[dict]:
    """Mean and spread of every statistic over disjoint samples of each size."""
    for name, statistic in {**STATISTICS, **OF_PAIRS}.items():
        for size in SIZES:
            if name in OF_PAIRS and size > PAIRS_AT_MOST:
                continue
            num = min(MOST_SAMPLES, len(whole[0]) // size)
            values = [statistic(part(whole, slice(index * size, (index + 1) * size))) for index in range(num)]
            yield row(name, size, values)


def part(whole: Sample, rows: slice) -> Sample:
    return whole[0][rows], whole[1][rows], whole[2][rows]


def by_length(model: infoflow.models.Model, pool: infoflow.Corpus) -> Iterator[dict]:
    """Entropy of attention in sentences of so many words, and as a share of that of uniform attention."""
    for low, high in LENGTHS:
        table = infoflow.measure(model, pool.filter_words(low, high), [Entropy()])["head_entropy"]
        yield row("attention entropy (size: words)", high, list(table["value"]))
        yield row("the same over that of uniform attention", high, list(table["value"] / table["baseline"]))


def row(name: str, size: int, values: list[float]) -> dict:
    found = np.array(values, dtype=float)
    spread = float(found.std(ddof=1)) if len(found) > 1 else np.nan
    return {"statistic": name, "size": size, "samples": len(found), "mean": found.mean(), "sd": spread}


if __name__ == "__main__":
    main()
