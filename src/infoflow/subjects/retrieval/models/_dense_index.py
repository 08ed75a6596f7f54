"""Search by inner product: exact, in blocks of bounded memory, or among candidates of an approximate index."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch
from jaxtyping import Float
from safetensors.torch import load_file, save_file
from torch import Tensor

from infoflow.foundation import UserError, missing_extra
from infoflow.models import Numbers

from ._found import Excluded, Found, best, check_search

# Approximate search by inner product: faiss selects candidates; scores and order are computed elsewhere.
#
# Source: [@malkov2020], [@jegou2011].

_PER_CENTROID = 39  # passages that faiss needs per centroid


@dataclass(frozen=True, kw_only=True, slots=True)
class HNSW:
    """A graph whose links lead to ever nearer passages: fast, but larger than the vectors themselves."""

    name: ClassVar[str] = "hnsw"

    links: int = 32  # links per passage; twice as many on the lowest level
    build_width: int = 200  # candidates kept while a passage is added
    search_width: int = 256  # candidates kept in a search; recall@10 of unit vectors: 1.0; with 64: .90; with 16: .56
    seed: int = 0  # seeds the levels

    def __post_init__(self) -> None:
        _require_at_least(self, {"links": 2, "build_width": 1, "search_width": 1, "seed": 0})


@dataclass(frozen=True, kw_only=True, slots=True)
class IVFPQ:
    """Passages listed by nearest centroid, each vector in a few bytes; for stores whose HNSW graph exceeds memory."""

    name: ClassVar[str] = "ivf"

    lists: int | None = None  # None: 4 √n, but few enough for 39 passages per list
    probes: int | None = None  # lists to search; None: an eighth of them, at least 8
    parts: int | None = None  # per vector, of `bits` bits each; None: the largest divisor of the width up to width / 4
    bits: int = 8
    candidates: int = 10  # number of candidates scored exactly, as a multiple of k
    seed: int = 0  # seeds the centroids

    def __post_init__(self) -> None:
        _require_at_least(self, {"lists": 1, "probes": 1, "parts": 1, "bits": 1, "candidates": 1, "seed": 0})
        if self.bits > 8:
            raise UserError(f"bits must be 1 to 8. Got {self.bits}.")

    def for_vectors(self, num: int, width: int) -> "IVFPQ":
        """The same settings, with default sizes replaced by those for this number of vectors.

        Raises:
            UserError: There are too few vectors to train centroids, or `parts` does not divide the width.
        """
        most, wanted = num // _PER_CENTROID, 1 << self.bits
        if most < max(wanted, self.lists or 1):
            needed = _PER_CENTROID * max(wanted, self.lists or 1)
            raise UserError(
                f"An index of kind ivf needs at least {needed:,} passages to train its centroids, {_PER_CENTROID} for "
                f"each. Got {num:,}.\nUse kind exact, or hnsw."
            )
        parts = self.parts or max(part for part in range(1, max(width // 4, 1) + 1) if width % part == 0)
        if width % parts:
            raise UserError(f"parts must divide the width of the vectors, {width}. Got {parts}.")
        lists = self.lists or max(1, min(round(4 * math.sqrt(num)), most))
        return replace(self, lists=lists, parts=parts, probes=min(self.probes or max(8, lists // 8), lists))


Approximate = HNSW | IVFPQ


def build_nearest(vectors: np.ndarray, how: Approximate) -> Any:
    """A faiss index of float32 (passage, width), built with one thread, so that the same input gives the same index."""
    num, width = vectors.shape
    if isinstance(how, IVFPQ):
        how = how.for_vectors(num, width)
    faiss = faiss_library(f"kind {how.name}")
    if isinstance(how, HNSW):
        index = faiss.IndexHNSWFlat(width, how.links, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = how.build_width
        index.hnsw.rng = faiss.RandomGenerator(how.seed)
    else:
        centroids = faiss.IndexFlatIP(width)
        index = faiss.IndexIVFPQ(centroids, width, how.lists, how.parts, how.bits, faiss.METRIC_INNER_PRODUCT)
        index.cp.seed = index.pq.cp.seed = how.seed
    with _one_thread(faiss):
        if isinstance(how, IVFPQ):
            index.train(vectors)
        index.add(vectors)
    _set_width(index, how)
    return index


def write_nearest(index: Any, path: Path) -> None:
    """Write the faiss index to a file. Keep a digest of it, since faiss does not detect a flipped byte."""
    faiss_library("An approximate index").write_index(index, str(path))


def read_nearest(path: Path, how: Approximate, shape: tuple[int, int]) -> Any:
    """The index that `write_nearest` saved for vectors of this shape; the caller must have checked its digest."""
    faiss = faiss_library(f"kind {how.name}")
    try:
        index = faiss.read_index(str(path))
    except RuntimeError:
        index = None
    wanted = faiss.IndexHNSWFlat if isinstance(how, HNSW) else faiss.IndexIVFPQ
    fits = isinstance(index, wanted) and (index.ntotal, index.d) == shape
    if not fits or index.metric_type != faiss.METRIC_INNER_PRODUCT:
        raise UserError(
            f"{path} is damaged: it is not a {how.name} index of {shape[0]:,} vectors.\nBuild the index again."
        )
    _set_width(index, how)
    return index


def flat_index(vectors: np.ndarray) -> Any:
    """faiss' exact index by inner product of float32 (passage, width)."""
    index = faiss_library("backend = faiss").IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return index


def faiss_library(feature: str) -> Any:
    """The faiss library; a UserError if it is not installed."""
    if find_spec("faiss") is None:
        raise missing_extra(feature, "faiss-cpu", "faiss")
    import faiss  # pyright: ignore[reportMissingImports]  # the extra `faiss`

    return faiss


def _set_width(index: Any, how: Approximate) -> None:
    """Set the search width, which some index files do not store."""
    if isinstance(how, HNSW):
        index.hnsw.efSearch = how.search_width
    else:
        index.nprobe = how.for_vectors(index.ntotal, index.d).probes


@contextmanager
def _one_thread(faiss: Any) -> Iterator[None]:
    """Run faiss with one thread, because with several the order of insertion into a graph would vary."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _require_at_least(how: Approximate, bounds: dict[str, int]) -> None:
    for name, least in bounds.items():
        value = getattr(how, name)
        if value is not None and not (isinstance(value, int) and value >= least):
            raise UserError(f"{name} of kind {how.name} must be a whole number, at least {least}. Got {value}.")


# Search by inner product: exact, in blocks of bounded memory, or among candidates of an approximate index.
#
# Scores are computed and ranked here, so that a pair has the same score whichever backend chooses the candidates.

Backend = Literal["torch", "faiss"] | Approximate
_BLOCK = 65_536  # passages per product
_QUERIES = 256
_ROWS = 4096  # passages scored at once
_SLACK = 16  # extra passages requested from faiss: their order is decided here
VECTORS, NEAREST = "vectors.safetensors", "nearest.faiss"  # files of an index on disk


@final
class DenseIndex:
    """Vectors of passages, with rows as ids; a score is an inner product, rounded to the vectors' precision.

    The score does not depend on other queries or passages: sums are in float64, along the vector.

    `backend="faiss"` (extra `faiss`) selects passages by its exact flat index, with the same results. `HNSW(...)` and
    `IVFPQ(...)` may miss some of the best passages (`search_recall` measures this), but always return k if they exist,
    because a query with too few candidates is searched exactly.
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
            self._faiss = build_nearest(self.vectors.float().numpy(), backend)
        elif backend == "faiss":
            self._faiss = flat_index(self.vectors.float().numpy())

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

    @torch.autocast("cpu", enabled=False)  # half precision would select other passages
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
        searched = _vectors(queries, "queries").to(self.vectors.dtype)
        if searched.shape[1] != self.vectors.shape[1]:
            raise UserError(
                f"Queries must have the width of the passages, {self.vectors.shape[1]}. Got {searched.shape[1]}."
            )
        excluded = check_search(k, len(searched), exclude)
        # Search for k plus the most exclusions of any query, so that k remain.
        wanted = min(k + max(map(len, excluded), default=0), len(self))
        rows = list[tuple[np.ndarray, np.ndarray]]()
        for start in range(0, len(searched), _QUERIES):
            part = slice(start, start + _QUERIES)
            near = self._candidates(searched[part], wanted)
            rows += [best(*pair, k, out) for pair, out in zip(near, excluded[part], strict=True)]
        return Found.stacked(rows, k, searched.numpy().dtype)

    def _candidates(self, queries: Tensor, wanted: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Ids and scores for each query, unordered: at least the best `wanted`; if approximate, the candidates."""
        if self._faiss is None:
            return self._exact(queries, wanted)
        many = self.backend.candidates if isinstance(self.backend, IVFPQ) else 1
        num_candidates = min(wanted * many + _SLACK, len(self))
        _, found = self._faiss.search(queries.float().numpy(), num_candidates)
        rows = []
        for query, places, doubt in zip(queries, found, self._doubt(queries), strict=True):
            ids = np.unique(places[places >= 0])
            values = self._scores(ids, query)
            unsure = len(ids) < wanted
            if not self.is_approximate and not unsure and num_candidates < len(self):
                unsure = np.sort(values)[::-1][wanted - 1] - values.min() <= doubt
            rows.append(self._exact(query[None], wanted)[0] if unsure else (ids, values))
        return rows

    def _exact(self, queries: Tensor, wanted: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Select all passages that may be among the best `wanted`, by rounded products, then score them."""
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
        of_query, vectors = query.double().numpy(), self.vectors.numpy()
        scores = np.empty(len(ids), dtype=vectors.dtype)
        for start in range(0, len(ids), _ROWS):
            part = vectors[ids[start : start + _ROWS]].astype(np.float64)
            scores[start : start + _ROWS] = (part * of_query).sum(axis=1)
        return scores

    def _doubt(self, queries: Tensor) -> np.ndarray:
        r"""Bound on the rounding error of the difference of two products: \(2 (d + 4) \epsilon \|q\| \max_z \|z\|\)."""
        dtype = self.vectors.dtype if self._faiss is None else torch.float32
        bound = 2 * (self.vectors.shape[1] + 4) * torch.finfo(dtype).eps * self._longest
        return bound * queries.double().norm(dim=1).numpy()

    # -- on disk ------------------------------------------------------------------------------------------------------

    def write(self, folder: Path) -> None:
        """Write the vectors and their approximate index into a folder; `read` loads them."""
        save_file({"vectors": self.vectors}, folder / VECTORS)
        if self.is_approximate:
            write_nearest(self._faiss, folder / NEAREST)

    @classmethod
    def read(cls, folder: Path, backend: Backend = "torch") -> "DenseIndex":
        """The index that `write` saved; the caller must have checked the files.

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
