"""Exact search by inner product, in blocks so that memory stays bounded."""

from importlib.util import find_spec
from typing import Any, Literal, final

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError, missing_extra

from ._found import Excluded, Found, best, check_search
from ._numbers import Numbers

Backend = Literal["torch", "faiss"]
_BLOCK = 65_536  # passages of one product
_QUERIES = 256
_SLACK = 16  # passages beyond k that faiss is asked for: their order is decided here


@final
class DenseIndex:
    """Vectors of passages whose ids are their rows; scores are inner products, in float32 at least.

    With `backend="faiss"` (extra `faiss`) the passages are chosen by its exact flat index, and scored and put in order
    as here, so both find the same; ties that reach beyond what faiss returned are searched again.
    """

    def __init__(self, vectors: Numbers, backend: Backend = "torch") -> None:
        """
        Args:
            vectors: (passage, width), float16, float32 or float64.
            backend: Who searches.

        Raises:
            UserError: There is no passage, a vector is not finite, or faiss is asked for and not installed.
        """
        self.vectors = _vectors(vectors, "vectors of passages")
        if not len(self.vectors):
            raise UserError("A dense index needs at least one passage. Got none.")
        if backend not in ("torch", "faiss"):
            raise UserError(f'backend must be "torch" or "faiss". Got {backend!r}.')
        self.backend = backend
        self._faiss = _flat_index(self.vectors) if backend == "faiss" else None

    def __len__(self) -> int:
        return len(self.vectors)

    @torch.autocast("cpu", enabled=False)  # half of the digits would make ties of different scores
    def search(self, queries: Numbers, k: int, exclude: Excluded | None = None) -> Found:
        """The k passages of the highest inner product with each query.

        Args:
            queries: (query, width).
            k: How many; where there are fewer the rest are id −1 and score −inf.
            exclude: Ids that each query must not find.

        Raises:
            UserError: Another width than the passages', a query that is not finite, k below 1, or another number of
                exclusions than of queries.
        """
        asked = _vectors(queries, "queries").to(self.vectors.dtype)
        if asked.shape[1] != self.vectors.shape[1]:
            raise UserError(f"Queries must be {self.vectors.shape[1]} wide, as the passages. Got {asked.shape[1]}.")
        excluded = check_search(k, len(asked), exclude)
        # As many more as the query that excludes most: what is left are the k best that may be found.
        wanted = min(k + max(map(len, excluded), default=0), len(self))
        ids = np.full((len(asked), k), -1, dtype=np.int64)
        scores = np.full((len(asked), k), -np.inf, dtype=asked.numpy().dtype)
        for start in range(0, len(asked), _QUERIES):
            part = asked[start : start + _QUERIES]
            for row, (places, values) in enumerate(self._candidates(part, wanted), start=start):
                ids[row], scores[row] = best(places, values, k, excluded[row])
        return Found(ids, scores)

    def _candidates(self, queries: Tensor, wanted: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Ids and scores of each query: the best `wanted`, with all that tie with the last of them."""
        if self._faiss is None:
            return self._exact(queries, wanted)
        asked = min(wanted + _SLACK, len(self))
        _, found = self._faiss.search(queries.float().numpy(), asked)
        rows = []
        for query, places in zip(queries, found, strict=True):
            ids = np.sort(places[places >= 0])
            values = (self.vectors[torch.from_numpy(ids)] @ query).numpy()
            unsure = asked < len(self) and np.sort(values)[::-1][wanted - 1] - values.min() <= _rounding(values)
            rows.append(self._exact(query[None], wanted)[0] if unsure else (ids, values))
        return rows

    def _exact(self, queries: Tensor, wanted: int) -> list[tuple[np.ndarray, np.ndarray]]:
        rows: list[tuple[np.ndarray, np.ndarray]] = [
            (np.empty(0, np.int64), np.empty(0, queries.numpy().dtype)) for _ in queries
        ]
        for start in range(0, len(self), _BLOCK):
            scores = queries @ self.vectors[start : start + _BLOCK].T
            least = scores.topk(min(wanted, scores.shape[1]), dim=1).values[:, -1:]
            for row, (values, enough) in enumerate(zip(scores.numpy(), (scores >= least).numpy(), strict=True)):
                places = np.flatnonzero(enough)
                ids, before = rows[row]
                rows[row] = np.concatenate([ids, places + start]), np.concatenate([before, values[places]])
        return rows


def _rounding(values: np.ndarray) -> float:
    """By how much two computations of a score may differ."""
    return float(np.abs(values).max()) * 1e-5


def _vectors(given: Any, what: str) -> Float[Tensor, "row width"]:
    vectors = torch.as_tensor(given).detach().cpu()
    if vectors.ndim != 2 or not vectors.is_floating_point():
        raise UserError(f"The {what} must be a matrix of floats. Got {vectors.dtype} of {tuple(vectors.shape)}.")
    vectors = vectors if vectors.dtype == torch.float64 else vectors.float()
    if not bool(torch.isfinite(vectors).all()):
        raise UserError(f"The {what} must be finite. Got NaN or infinity.\nTrain with a lower learning rate.")
    return vectors.contiguous()


def _flat_index(vectors: Tensor) -> Any:
    if find_spec("faiss") is None:
        raise missing_extra("backend = faiss", "faiss-cpu", "faiss")
    import faiss  # pyright: ignore[reportMissingImports]  # the extra `faiss`

    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors.float().numpy())
    return index
