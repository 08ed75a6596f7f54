"""Search by inner product: exact, in blocks of bounded memory, or among candidates of an approximate index.

Scores are computed and ranked here, in one way for each pair, whichever backend chooses the candidates.
"""

from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import torch
from jaxtyping import Float
from safetensors.torch import load_file, save_file
from torch import Tensor

from infoflow.foundation import UserError
from infoflow.objectives import Numbers

from ._approximate import IVFPQ, Approximate, build_nearest, flat_index, read_nearest, write_nearest
from ._found import Excluded, Found, best, check_search

Backend = Literal["torch", "faiss"] | Approximate
_BLOCK = 65_536  # passages per product
_QUERIES = 256
_ROWS = 4096  # passages scored at once
_SLACK = 16  # extra passages requested from faiss: their order is decided here
VECTORS, NEAREST = "vectors.safetensors", "nearest.faiss"
"""Files of an index on disk."""


@final
class DenseIndex:
    """Vectors of passages, with rows as ids; a score is an inner product, rounded to the vectors' precision.

    The score does not depend on other queries or passages: sums are in float64, along the vector.

    `backend="faiss"` (extra `faiss`) selects passages by its exact flat index, with the same results. `HNSW(...)` and
    `IVFPQ(...)` may miss some of the best (`search_recall` counts them), but always return as many as exist: a query
    with too few candidates is searched exactly.
    """

    def __init__(self, vectors: Numbers, backend: Backend = "torch") -> None:
        """
        Args:
            vectors: (passage, width), float16, float32 or float64.
            backend: The search backend.

        Raises:
            UserError: There is no passage or too few to train the backend, a vector is not finite, or faiss is not
                installed.
        """
        self._set(vectors, backend)
        if self.is_approximate:
            assert not isinstance(backend, str)
            self._faiss = build_nearest(self._float32(), backend)
        elif backend == "faiss":
            self._faiss = flat_index(self._float32())

    def _set(self, vectors: Numbers, backend: Backend) -> None:
        self.vectors = _vectors(vectors, "vectors of passages")
        if not len(self.vectors):
            raise UserError("A dense index needs at least one passage. Got none.")
        if not (backend in ("torch", "faiss") or isinstance(backend, Approximate)):
            raise UserError(f'backend must be "torch", "faiss", HNSW(...) or IVFPQ(...). Got {backend!r}.')
        self.backend: Backend = backend
        self._faiss: Any = None
        self._longest = max(float(part.double().norm(dim=1).max()) for part in self.vectors.split(_BLOCK))

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def is_approximate(self) -> bool:
        """Whether the search may miss some of the best passages."""
        return not isinstance(self.backend, str)

    @torch.autocast("cpu", enabled=False)  # half precision would select others
    def search(self, queries: Numbers, k: int, exclude: Excluded | None = None) -> Found:
        """The k passages with the highest inner product with each query.

        Args:
            queries: (query, width).
            k: Number of results; missing ones have id −1 and score −inf.
            exclude: Ids to exclude for each query.

        Raises:
            UserError: The width differs from the passages', a query is not finite, k is below 1, or the number of
                exclusions differs from the number of queries.
        """
        asked = _vectors(queries, "queries").to(self.vectors.dtype)
        if asked.shape[1] != self.vectors.shape[1]:
            raise UserError(f"Queries must be {self.vectors.shape[1]} wide, as the passages. Got {asked.shape[1]}.")
        excluded = check_search(k, len(asked), exclude)
        # Search for as many more as the largest exclusion, so that k remain.
        wanted = min(k + max(map(len, excluded), default=0), len(self))
        ids = np.full((len(asked), k), -1, dtype=np.int64)
        scores = np.full((len(asked), k), -np.inf, dtype=asked.numpy().dtype)
        for start in range(0, len(asked), _QUERIES):
            part = asked[start : start + _QUERIES]
            for row, (places, values) in enumerate(self._candidates(part, wanted), start=start):
                ids[row], scores[row] = best(places, values, k, excluded[row])
        return Found(ids, scores)

    def _candidates(self, queries: Tensor, wanted: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Ids and scores for each query: the best `wanted` with all ties of the last one, or candidates."""
        if self._faiss is None:
            return self._exact(queries, wanted)
        many = self.backend.candidates if isinstance(self.backend, IVFPQ) else 1
        asked = min(wanted * many + _SLACK, len(self))
        _, found = self._faiss.search(queries.float().numpy(), asked)
        rows = []
        for query, places, doubt in zip(queries, found, self._doubt(queries), strict=True):
            ids = np.unique(places[places >= 0])
            values = self._scores(ids, query)
            unsure = len(ids) < wanted
            if not self.is_approximate and not unsure and asked < len(self):
                unsure = np.sort(values)[::-1][wanted - 1] - values.min() <= doubt
            rows.append(self._exact(query[None], wanted)[0] if unsure else (ids, values))
        return rows

    def _exact(self, queries: Tensor, wanted: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Select by rounded products all passages that may be among the best `wanted`, then score them."""
        empty = np.empty(0, np.int64), np.empty(0, queries.numpy().dtype)
        near: list[tuple[np.ndarray, np.ndarray]] = [empty for _ in queries]
        doubt = torch.from_numpy(self._doubt(queries)).to(queries.dtype)
        for start in range(0, len(self), _BLOCK):
            products = queries @ self.vectors[start : start + _BLOCK].T
            least = products.topk(min(wanted, products.shape[1]), dim=1).values[:, -1] - doubt
            enough = (products >= least[:, None]).numpy()
            for row, (values, kept) in enumerate(zip(products.numpy(), enough, strict=True)):
                places = np.flatnonzero(kept)
                ids, before = near[row]
                near[row] = np.concatenate([ids, places + start]), np.concatenate([before, values[places]])
        rows = []
        for query, (ids, values), margin in zip(queries, near, doubt.numpy(), strict=True):
            kept = ids[values >= np.partition(values, len(values) - wanted)[len(values) - wanted] - margin]
            rows.append((kept, self._scores(kept, query)))
        return rows

    def _scores(self, ids: np.ndarray, query: Tensor) -> np.ndarray:
        """The inner products of passages with one query."""
        of_query, vectors = query.double().numpy(), self.vectors.numpy()
        scores = np.empty(len(ids), dtype=vectors.dtype)
        for start in range(0, len(ids), _ROWS):
            part = vectors[ids[start : start + _ROWS]].astype(np.float64)
            scores[start : start + _ROWS] = (part * of_query).sum(axis=1)
        return scores

    def _doubt(self, queries: Tensor) -> np.ndarray:
        r"""Rounding error bound on the difference of two products, (query,): \(2 (d + 4) \epsilon \|q\| \max_z \|z\|\).

        faiss uses single precision for all vectors.
        """
        dtype = self.vectors.dtype if self._faiss is None else torch.float32
        bound = 2 * (self.vectors.shape[1] + 4) * torch.finfo(dtype).eps * self._longest
        return bound * queries.double().norm(dim=1).numpy()

    def _float32(self) -> np.ndarray:
        return self.vectors.float().numpy()

    # -- on disk ------------------------------------------------------------------------------------------------------

    def write(self, folder: Path) -> None:
        """Write the vectors and their approximate index into a folder; `read` loads them."""
        save_file({"vectors": self.vectors}, folder / VECTORS)
        if self.is_approximate:
            write_nearest(self._faiss, folder / NEAREST)

    @classmethod
    def read(cls, folder: Path, backend: Backend = "torch") -> "DenseIndex":
        """The index that `write` saved; the caller has checked the files.

        Raises:
            UserError: faiss is needed and not installed, or its file belongs to other vectors.
        """
        vectors = load_file(folder / VECTORS)["vectors"]
        if isinstance(backend, str):
            return cls(vectors, backend)
        index = object.__new__(cls)
        index._set(vectors, backend)
        index._faiss = read_nearest(folder / NEAREST, backend, tuple(index.vectors.shape))
        return index


def _vectors(given: Any, what: str) -> Float[Tensor, "row width"]:
    vectors = torch.as_tensor(given).detach().cpu()
    if vectors.ndim != 2 or not vectors.is_floating_point():
        raise UserError(f"The {what} must be a matrix of floats. Got {vectors.dtype} of {tuple(vectors.shape)}.")
    vectors = vectors if vectors.dtype == torch.float64 else vectors.float()
    if not bool(torch.isfinite(vectors).all()):
        raise UserError(f"The {what} must be finite. Got NaN or infinity.\nTrain with a lower learning rate.")
    return vectors.contiguous()
