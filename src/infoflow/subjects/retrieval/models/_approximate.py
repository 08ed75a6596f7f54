"""Approximate search by inner product: faiss selects candidates; scores and order are computed elsewhere.

Source: [@malkov2020], [@jegou2011].
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from infoflow.foundation import UserError, missing_extra

_PER_CENTROID = 39  # passages that faiss needs per centroid


@dataclass(frozen=True, kw_only=True, slots=True)
class HNSW:
    """A graph that leads from passage to nearer passage: fast, but larger than the vectors themselves."""

    links: int = 32  # per passage; twice as many on the lowest level
    build_width: int = 200  # candidates kept while a passage is added
    search_width: int = 256  # candidates kept in a search; at 64 recall@10 of unit vectors was .90, at 16 .56, here 1.0
    seed: int = 0  # seeds the levels

    def __post_init__(self) -> None:
        _require_at_least(self, {"links": 2, "build_width": 1, "search_width": 1, "seed": 0})

    @property
    def name(self) -> str:
        return "hnsw"


@dataclass(frozen=True, kw_only=True, slots=True)
class IVFPQ:
    """Passages in lists by nearest centroid, each vector in a few bytes: for stores whose graph exceeds memory."""

    lists: int | None = None  # None: 4 √n, but 39 passages or more a list
    probes: int | None = None  # lists to search; None: an eighth, at least 8
    parts: int | None = None  # of a vector, `bits` each; None: the largest divisor of the width up to a quarter of it
    bits: int = 8
    candidates: int = 10  # number of candidates scored exactly, as a multiple of k
    seed: int = 0  # seeds the centroids

    def __post_init__(self) -> None:
        _require_at_least(self, {"lists": 1, "probes": 1, "parts": 1, "bits": 1, "candidates": 1, "seed": 0})
        if self.bits > 8:
            raise UserError(f"bits of a part must be 1 to 8. Got {self.bits}.")

    @property
    def name(self) -> str:
        return "ivf"

    def for_vectors(self, num: int, width: int) -> "IVFPQ":
        """The same with all sizes filled in for this many vectors.

        Raises:
            UserError: There are too few to train centroids, or `parts` does not divide the width.
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
    """A faiss index of float32 (passage, width), built with one thread: depends only on vectors and settings.

    Raises:
        UserError: faiss is not installed, or as `IVFPQ.for_vectors`.
    """
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
    """Write the faiss index to a file. faiss does not detect a flipped byte: keep a digest."""
    faiss_library("An approximate index").write_index(index, str(path))


def read_nearest(path: Path, how: Approximate, shape: tuple[int, int]) -> Any:
    """The index that `write_nearest` saved for vectors of this shape; the caller has checked the file's digest.

    Raises:
        UserError: faiss is not installed, or the file holds something else.
    """
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
    """faiss' exact index by inner product of float32 (passage, width).

    Raises:
        UserError: faiss is not installed.
    """
    index = faiss_library("backend = faiss").IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return index


def faiss_library(feature: str) -> Any:
    """The faiss library.

    Raises:
        UserError: It is not installed.
    """
    if find_spec("faiss") is None:
        raise missing_extra(feature, "faiss-cpu", "faiss")
    import faiss  # pyright: ignore[reportMissingImports]  # the extra `faiss`

    return faiss


def _set_width(index: Any, how: Approximate) -> None:
    """Set the search width: not all files keep it."""
    if isinstance(how, HNSW):
        index.hnsw.efSearch = how.search_width
    else:
        index.nprobe = how.for_vectors(index.ntotal, index.d).probes


@contextmanager
def _one_thread(faiss: Any) -> Iterator[None]:
    """With several threads, the order of insertion into a graph would vary."""
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
