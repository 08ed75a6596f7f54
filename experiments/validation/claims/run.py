"""Every claim on simulated runs of three seeds: where all is as claimed, where one condition is missed, and between.

    python experiments/validation/claims/run.py [--draws 1000] [--seeds 3] [--out experiments/validation/claims]

Numbers on which a claim is true, and numbers that miss one of its conditions, are found by search
(`tests/findings/simulated_claims.py`); between them lies the border, where that condition is just not met. Seeds and
sentences scatter around each. Claims that the file has are not run again.
"""

import argparse
import sys
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[2] / "tests"))

from findings.simulated_claims import MORE_SEEDS, TESTED, judged, noise_of, searched  # noqa: E402

VERDICTS = ("holds", "fails", "undetermined")


def main() -> None:
    """Writes `claims.csv`, claim by claim."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000, help="simulated studies on each border")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each study")
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    path = options.out / "claims.csv"
    rows = pd.read_csv(path).to_dict("records") if path.exists() else []
    for name in TESTED:
        if name in {row["claim"] for row in rows}:
            continue
        rows += rows_of(name, options.draws, MORE_SEEDS.get(name, options.seeds))
        pd.DataFrame(rows).sort_values(["claim", "where", "condition"]).to_csv(path, index=False)
        print(name, flush=True)


def rows_of(name: str, draws: int, seeds: int) -> list[dict]:
    """Shares of the verdicts: as claimed, with each condition missed, and on the border of each condition."""
    search, true, missed = searched(name)
    rows = []
    for number, refuted in enumerate(missed):
        noise = noise_of(true, refuted, search.forms)
        places = {"refuted": refuted, "border": search.between(true, refuted)}
        for where, curves in ({"true": true} | places if number == 0 else places).items():
            num = draws if where == "border" else max(draws // 10, 1)
            verdicts = [judged(search.finding, curves, noise, draw, seeds) for draw in range(num)]
            shares = {verdict: round(verdicts.count(verdict) / num, 4) for verdict in VERDICTS}
            rows.append({"claim": name, "where": where, "condition": number + 1, "draws": num, **shares})
    return rows


if __name__ == "__main__":
    main()
