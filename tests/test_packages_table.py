"""`experiments/validation/packages`: the committed comparison is complete, and of functions that exist."""

import csv
from pathlib import Path
from pkgutil import resolve_name

TABLE = Path(__file__).parents[1] / "experiments" / "validation" / "packages" / "packages.csv"
PACKAGES = {
    "netrep", "ReSi", "rsatoolbox", "scikit-dimension", "dadapy", "bert-score", "minicons", "transformers", "captum",
    "lxt", "transformer-lens", "transformer-lens 3", "LLM Transparency Tool",
}  # fmt: skip


def test_every_row_agrees_or_says_who_is_right():
    with TABLE.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["package"] for row in rows} == PACKAGES
    for row in rows:
        resolve_name(f"infoflow.{row['function']}")
        agrees = row["largest_difference"] != "" and float(row["largest_difference"]) <= float(row["tolerance"])
        assert row["agrees"] == str(agrees), row
        assert agrees or row["who_is_right"].startswith("ours: "), row
        assert row["version"], row
