"""Passages in a database instead of an index in memory: one adapter behind `.search`.

    python examples/vector_database.py

SQLite stands for the database, since Python has it. One that indexes vectors (pgvector, Qdrant, Milvus, OpenSearch)
has a query of its own, and all else stays: inner product, exclusions in the query, ties by the lower id.
"""

import sqlite3
from collections.abc import Sequence

import numpy as np

from infoflow.retrieval import DenseIndex, Found, Searches, reciprocal_rank


class VectorTable:
    """What `infoflow.retrieval.Searches` asks for, over a table `passages(id, vector)`."""

    def __init__(self, path: str, vectors: np.ndarray) -> None:
        """Put vectors, float32 (passage, width), into the database at `path`; ":memory:" is one that ends with us."""
        self._database = sqlite3.connect(path)
        self._database.create_function("inner_product", 2, _inner_product, deterministic=True)
        with self._database:
            self._database.execute("CREATE TABLE passages (id INTEGER PRIMARY KEY, vector BLOB NOT NULL)")
            rows = ((id, vector.tobytes()) for id, vector in enumerate(vectors))
            self._database.executemany("INSERT INTO passages VALUES (?, ?)", rows)

    def __len__(self) -> int:
        return self._database.execute("SELECT count(*) FROM passages").fetchone()[0]

    def search(self, queries: np.ndarray, k: int, exclude: Sequence[Sequence[int]] | None = None) -> Found:
        """The k passages of the highest inner product with each query, float32 (query, width); see `Searches`."""
        ids = np.full((len(queries), k), -1, dtype=np.int64)
        scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
        for row, query in enumerate(np.asarray(queries, dtype=np.float32)):
            found = self._search(query, k, () if exclude is None else exclude[row])
            for place, (id, score) in enumerate(found):
                ids[row, place], scores[row, place] = id, score
        return Found(ids, scores)

    def _search(self, query: np.ndarray, k: int, excluded: Sequence[int]) -> list[tuple[int, float]]:
        numbers = ", ".join(str(int(id)) for id in excluded)
        # pgvector: SELECT id, -(vector <#> $1) AS score FROM passages WHERE ... ORDER BY score DESC, id LIMIT $2
        asked = f"""SELECT id, inner_product(vector, ?) AS score FROM passages
                    WHERE id NOT IN ({numbers}) ORDER BY score DESC, id LIMIT ?"""
        return self._database.execute(asked, (query.tobytes(), k)).fetchall()


def _inner_product(one: bytes, other: bytes) -> float:
    vectors = (np.frombuffer(each, dtype=np.float32).astype(np.float64) for each in (one, other))
    return float(np.float32(np.multiply(*vectors).sum()))


def main() -> None:
    """Both find the same passages, with the same scores."""
    generator = np.random.default_rng(0)
    passages = generator.standard_normal((500, 32)).astype(np.float32)
    right = generator.integers(0, len(passages), 20)
    queries = passages[right] + 0.5 * generator.standard_normal((20, 32)).astype(np.float32)
    indexes: dict[str, Searches] = {"database": VectorTable(":memory:", passages), "memory": DenseIndex(passages)}
    found = {name: index.search(queries, 10, [[0]] * len(queries)) for name, index in indexes.items()}
    assert np.array_equal(found["database"].ids, found["memory"].ids)
    assert np.array_equal(found["database"].scores, found["memory"].scores)
    for name, rows in found.items():
        print(f"{name}: MRR@10 {reciprocal_rank(rows.ids, [[id] for id in right.tolist()]).mean():.3f}")


if __name__ == "__main__":
    main()
