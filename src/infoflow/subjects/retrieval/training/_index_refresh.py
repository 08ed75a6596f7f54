"""The training hook that rebuilds the index of a model with passages while its retriever learns."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch
from accelerate.utils import gather_object
from torch import Tensor

from infoflow.flow import processes
from infoflow.foundation import current_display
from infoflow.models import pad_rows
from infoflow.results import RETRIEVAL_LEARNING
from infoflow.training._update import Step, TrainingHook

from ..models import Library, RetrievalModel, Tower, overlap, tower_copy, vectors_digest
from ..objectives._retrieval_lm import RetrievalLM

_PROBES = 64  # queries on which the stale and the fresh index are compared
_COLUMNS = ("queries", "reader term", "retriever term", "utility of a passage", "utility of retrieval", "null prior")


class IndexRefresh(TrainingHook):
    """Builds the index every F updates, freezes the retriever at first, and records the components of each update.

    The index is built at updates 1, F + 1, 2 F + 1, ..., from the weights `lag` updates earlier. The retriever is
    frozen in the first `freeze_retriever` of the updates.

    Candidates are selected by the index, which is stale between two builds; their scores and gradients use the current
    weights. A checkpoint holds the index's weights, not its vectors: a resumed run embeds the passages again and
    compares a digest. Each process searches the whole index for its own queries; records cover all processes.
    """

    name = "index"

    def __init__(self, module: RetrievalModel) -> None:
        self._module = module
        self._built, self._digest = 0, 0  # update of the index's weights, from 1; 0: none yet
        self._tower: dict[str, Tensor] = {}  # those weights
        self._earlier: dict[str, Tensor] = {}  # weights for the next build, if there is a lag
        self._earlier_of = 0
        self._probes: tuple[Tensor, Tensor] | None = None
        self._rows: list[list[float]] = []
        self._overlap = float("nan")

    @property
    def table(self) -> pd.DataFrame:
        """The table `retrieval_learning` so far."""
        names = [column.name for column in RETRIEVAL_LEARNING.columns]
        return RETRIEVAL_LEARNING.conform(pd.DataFrame(self._rows, columns=names))

    def on_step_begin(self, step: Step) -> None:
        objective, module = step.objective, self._module
        assert isinstance(objective, RetrievalLM)
        module.record = []
        self._overlap = float("nan")
        if module.source not in ("frozen", "learned"):
            return
        if self._probes is None:
            self._probes = _first_queries(step)
        module.retriever_frozen = step.update <= objective.freeze_retriever * step.total
        every = objective.refresh_every if module.source == "learned" else -1
        if objective.lag and every > 0 and (step.update + objective.lag) % every == 1 % every:
            self._earlier, self._earlier_of = _weights(self._passages), step.update
        if step.update == 1 or (every > 0 and step.update % every == 1 % every):
            lagged = objective.lag > 0 and self._earlier_of > 0
            weights = self._earlier if lagged else _weights(self._passages)
            self._build(weights, self._earlier_of if lagged else step.update, objective.k)
            self._earlier, self._earlier_of = {}, 0

    def on_step_end(self, step: Step) -> None:
        record, self._module.record = self._module.record or [], None
        sums = _added_up([sum(one[name] for one in record) for name in _COLUMNS], self._module)
        means = [value / sums[0] if sums[0] else float("nan") for value in sums[1:]]
        age = step.update - self._built if self._built else -1
        self._rows.append([step.update, sums[0], *means, age, self._overlap])

    def _build(self, weights: dict[str, Tensor], update: int, k: int) -> None:
        library = self._library
        before = self._top(k) if library.dense is not None and self._built else None
        library.dense = library.embed(self._loaded(weights))
        self._tower, self._built = weights, update
        self._digest = int(vectors_digest(library.dense)[:15], 16)
        if before is not None:
            self._overlap = overlap(before, self._top(k))

    def _top(self, k: int) -> np.ndarray:
        """The k best passages of the fixed queries, by the current query encoder and index."""
        assert self._probes is not None
        assert self._module.retriever is not None
        device = next(self._module.parameters()).device
        tower = tower_copy(self._module.retriever.queries)
        with torch.no_grad():
            vectors = tower(*(part.to(device) for part in self._probes))
        return self._library.by_vectors(vectors, k, [()] * len(vectors)).ids

    def _loaded(self, weights: dict[str, Tensor]) -> Tower:
        tower = tower_copy(self._passages)
        tower.load_state_dict(weights)
        return tower

    @property
    def _passages(self) -> Tower:
        assert self._module.retriever is not None
        return self._module.retriever.passages

    @property
    def _library(self) -> Library:
        assert self._module.passage_library is not None
        return self._module.passage_library

    # -- exact resume -------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        names = len(RETRIEVAL_LEARNING.columns)
        state = {
            "numbers": torch.tensor([self._built, self._digest, self._earlier_of], dtype=torch.int64),
            "rows": torch.tensor(self._rows, dtype=torch.float64).reshape(-1, names),
            **{f"tower.{name}": tensor for name, tensor in self._tower.items()},
            **{f"earlier.{name}": tensor for name, tensor in self._earlier.items()},
        }
        if self._probes is not None:
            state |= {"probe_ids": self._probes[0], "probe_mask": self._probes[1]}
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._built, digest, self._earlier_of = state["numbers"].tolist()
        self._rows = state["rows"].tolist()
        self._tower, self._earlier = dict(_below(state, "tower.")), dict(_below(state, "earlier."))
        if "probe_ids" in state:
            self._probes = state["probe_ids"], state["probe_mask"]
        if not self._tower:
            return
        self._library.dense = self._library.embed(self._loaded(self._tower))
        self._digest = int(vectors_digest(self._library.dense)[:15], 16)
        if self._digest != digest:
            current_display().warn(
                f"The re-embedded passages have the digest {self._digest:x}, previously {digest:x}: the hardware or "
                "a library has changed. From here on the run is not reproducible bit for bit."
            )


def _below(state: dict[str, Tensor], prefix: str) -> Iterator[tuple[str, Tensor]]:
    yield from ((name.removeprefix(prefix), tensor) for name, tensor in state.items() if name.startswith(prefix))


def _weights(tower: Tower) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in tower.state_dict().items()}


def _added_up(sums: list[float], module: RetrievalModel) -> list[float]:
    """Sums over all processes, each of which has read its own queries."""
    if processes()[1] == 1:
        return sums
    values = torch.tensor(sums, dtype=torch.float64, device=module.device)
    torch.distributed.all_reduce(values)
    return values.tolist()


def _first_queries(step: Step) -> tuple[Tensor, Tensor] | None:
    """The shortest queries of this update, padded; they depend only on the run's data and seed."""
    own = [row[real].tolist() for batch in step.batches for row, real in zip(batch.input_ids, batch.real, strict=True)]
    rows = sorted(gather_object(own), key=lambda row: (len(row), row))[:_PROBES]
    return pad_rows(rows, 0) if rows else None
