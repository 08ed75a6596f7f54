"""What scripts of `experiments` that collect finished runs have in common."""

from pathlib import Path

import pandas as pd
import pytest
from support.scripts import script

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
put = script(EXPERIMENTS / "collecting.py").put


def scores(*rows: tuple[str, int, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["cell", "seed", "value"])


def test_rows_are_put_in_place_of_their_own_kind(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    put(scores(("b", 0, 0.123456), ("a", 0, 2.0), ("a", 1, 3.0)), path, ["cell"])
    put(scores(("a", 0, 4.0), ("c", 0, 5.0)), path, ["cell"])
    assert path.read_text() == "cell,seed,value\nb,0,0.1235\na,0,4\nc,0,5\n"  # a's seed 1 went with its cell


def test_rows_agree_in_all_columns_that_are_named(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    put(scores(("a", 0, 1.0), ("a", 1, 2.0), ("b", 1, 3.0)), path, ["cell", "seed"])
    put(scores(("a", 1, 9.0)), path, ["cell", "seed"], ["cell", "seed"])
    assert path.read_text() == "cell,seed,value\na,0,1\na,1,9\nb,1,3\n"


def test_numbers_agree_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "costs.csv"
    for value in (1.0, 2.0):
        put(pd.DataFrame({"cost": [1.234567e13, 5.0], "value": [value, 3.0]}), path, ["cost"])
    assert path.read_text() == "cost,value\n1.235e+13,2\n5,3\n"


@pytest.mark.parametrize(
    ("table", "own", "order"),
    [
        ("studies/scale/scores.csv", ["cell"], ["cell", "objective", "seed", "metric"]),
        *((f"studies/reasons/{name}.csv", ["arm"], []) for name in ("findings", "scores", "distances", "by_frequency")),
        ("campaigns/settings/context.csv", ["corpus", "variation"], []),
        ("campaigns/settings/settings.csv", ["corpus", "variation", "objective", "operations_of_all"], []),
        (
            "studies/pruning-scale/recovered.csv",
            ["seed", "heads", "decoder", "learning_rate", "updates", "kept", "metric"],
            [],
        ),
    ],
)
def test_nothing_to_put_leaves_the_committed_table(
    table: str, own: list[str], order: list[str], tmp_path: Path
) -> None:
    committed = (EXPERIMENTS / table).read_text()
    path = tmp_path / "table.csv"
    path.write_text(committed)
    put(pd.read_csv(path).iloc[:0], path, own, order)
    assert path.read_text() == committed
