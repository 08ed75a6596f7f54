"""The example of a vector database runs, and its adapter keeps what an index promises."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from infoflow.retrieval import PassageIndex, Passages, Searches, candidates

EXAMPLE = Path(__file__).parents[2] / "examples" / "vector_database.py"


@pytest.fixture(scope="module")
def example():
    return runpy.run_path(str(EXAMPLE))


def test_the_example_runs(example, capsys):
    example["main"]()
    told = [line.split(": ") for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in told] == ["database", "memory"]
    assert told[0][1] == told[1][1]


def test_an_adapter_ties_excludes_and_pads_as_an_index(example, tmp_path):
    vectors = np.array([[1, 0], [3, 3], [0, 1], [3, 3]], dtype=np.float32)
    table = example["VectorTable"](str(tmp_path / "passages.db"), vectors)
    assert isinstance(table, Searches)
    assert len(table) == 4
    queries = np.array([[1, 0.5], [0, 1]], dtype=np.float32)
    found = table.search(queries, 5, [{1, 99}, set()])
    assert found.ids.tolist() == [[3, 0, 2, -1, -1], [1, 3, 2, 0, -1]]
    assert found.scores.tolist() == [[4.5, 1, 0.5, -np.inf, -np.inf], [3, 3, 1, 0, -np.inf]]
    passages = Passages.from_rows(["a", "b", "c", "b"])
    assert len(PassageIndex(passages, table).index) == 4
    chosen = candidates(lambda k, out: table.search(queries, k, out), 2, [{0}, {0}], passages.text_keys)
    assert chosen.ids.tolist() == [[1, 2], [1, 2]]  # one of the two equal texts
