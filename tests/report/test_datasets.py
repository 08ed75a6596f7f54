"""What charts say of their tables and layers, against Altair's own slower way."""

import json

import altair as alt
import numpy as np
import pandas as pd
import pytest
from altair.utils.data import to_values
from report.drawn import finished, records

TABLE = pd.DataFrame(
    {
        "number": [1.5, np.nan, np.inf],
        "small": np.array([0.1, -np.inf, 2], dtype=np.float32),
        "count": [1, 2, 3],
        "holds": [True, False, True],
        "name": pd.Series(["a", None, "<b>"], dtype="str"),
        "text": pd.Series(["a", None, "b"], dtype="string"),
        "mixed": pd.Series([np.array([1.0, 2.0]), None, "b"], dtype=object),
        "list": pd.Series([[1, 2], [], [3]], dtype=object),
        "kind": pd.Categorical(["x", None, "y"]),
        "maybe": pd.array([1, None, 3], dtype="Int64"),
        "judged": pd.array([True, None, False], dtype="boolean"),
    }
).set_index(pd.Index([5, 3, 3]))


def test_rows_are_those_of_altair() -> None:
    found = records(TABLE)
    assert found == to_values(TABLE)["values"]
    assert json.dumps(found, allow_nan=False)
    kinds = [{name: type(value) for name, value in row.items()} for row in found]
    assert kinds == [{name: type(value) for name, value in row.items()} for row in to_values(TABLE)["values"]]
    assert records(TABLE.iloc[:0]) == []


def charts(*tables: pd.DataFrame) -> list[alt.Chart]:
    return [alt.Chart(table).mark_line().encode(x="count:Q", y="number:Q", detail="name:N") for table in tables]


OTHER = TABLE.assign(count=7)
LAYERS = {
    "one table": lambda: charts(TABLE, TABLE, TABLE),
    "two tables": lambda: charts(TABLE, OTHER, TABLE),
    "equal tables": lambda: charts(TABLE, TABLE.copy()),
    "no table": lambda: [alt.Chart().mark_rule().encode(x=alt.datum(1)), *charts(TABLE)],
    "a size": lambda: [charts(TABLE)[0].properties(width=100), *charts(OTHER)],
    "a parameter": lambda: [charts(TABLE)[0].add_params(alt.param(name="shown", value=1)), *charts(OTHER)],
}


@pytest.mark.parametrize("kind", LAYERS)
def test_layers_are_those_of_altair(kind: str) -> None:
    one = finished(LAYERS[kind](), 100)
    with alt.data_transformers.enable("default"):
        expected = alt.layer(*LAYERS[kind]()).to_dict(validate=False)
    assert one["datasets"] == expected["datasets"]
    assert one.get("data") == expected.get("data")
    assert one["layer"] == expected["layer"]
    assert one["params"][: len(expected.get("params", []))] == expected.get("params", [])
    assert [layer.get("data") for layer in one["layer"]] == [layer.get("data") for layer in expected["layer"]]
    assert [layer["encoding"].keys() for layer in one["layer"] if "encoding" in layer] == [
        layer["encoding"].keys() for layer in expected["layer"] if "encoding" in layer
    ]
