"""Shards of an index: in one process, or over the processes of a group."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, final

import numpy as np
import torch.distributed as dist
from torch import Tensor

from infoflow.foundation import UserError

from ._found import Excluded, Found, Searches, best, check_search
from ._passages import Shard

# Shards of an index in one process: the best of each shard are merged.


@final
class ShardedIndex:
    """Indexes of all shards of a store, with exactly the results and scores of an index of the whole store.

    This holds for exact indexes: dense ones, and lexical ones with the statistics of all passages.
    """

    def __init__(self, shards: Sequence[Searches]) -> None:
        """
        Args:
            shards: By number: shard i of n has the passages i, i + n, i + 2n, ...

        Raises:
            UserError: There is none.
        """
        if not shards:
            raise UserError("A sharded index needs at least one shard. Got none.")
        self.shards = list(shards)

    def __len__(self) -> int:
        return sum(map(len, self.shards))

    def search(self, queries: Any, k: int, exclude: Excluded | None = None) -> Found:
        """The k best passages of each query.

        Args:
            queries: Input of each shard: vectors, or terms.
            k: Number of results; missing ones have id −1 and score −inf.
            exclude: Ids to exclude for each query.

        Raises:
            UserError: As in the shards' own search.
        """
        excluded, of = check_search(k, len(queries), exclude), len(self.shards)
        return merged(
            [search_shard(one, number, of, queries, k, excluded) for number, one in enumerate(self.shards)], k
        )


def search_shard(shard: Searches, number: int, of: int, queries: Any, k: int, excluded: Sequence[set[int]]) -> Found:
    """Results of one shard, with ids of the whole store."""
    own = [{id // of for id in out if id % of == number} for out in excluded]
    ids, scores = shard.search(queries, k, own)
    return Found(np.where(ids < 0, ids, ids * of + number), scores)


def merged(found: Sequence[Found], k: int) -> Found:
    """The k best results of all shards for each query."""
    ids, scores = (np.concatenate(column, axis=1) for column in zip(*found, strict=True))
    rows = [best(*row, k, set()) for row in zip(ids, scores, strict=True)]
    kept = np.array([row for row, _ in rows], dtype=np.int64).reshape(-1, k)
    return Found(kept, np.array([values for _, values in rows], dtype=scores.dtype).reshape(-1, k))


# Shards of an index over the processes of a group: every query goes to all of them.


T = TypeVar("T")


@final
class GroupIndex:
    """One shard in each process of a group (gloo), with the results of an index of the whole store.

    Queries are gathered, each process searches its shard for all of them, and the results are gathered and merged in
    the requesting process, as in Atlas. All processes must search at the same time, each with its own queries or none.
    If one refuses, all do.
    """

    def __init__(self, index: Searches, shard: Shard, group: Any = None) -> None:
        """
        Args:
            index: Index of this process's shard.
            shard: Number of this shard (`Passages.shard`).
            group: None: all processes; join them first (`infoflow.flow.processes`).

        Raises:
            UserError: There is no process group, or its processes do not hold each shard of one store exactly once.
        """
        if not (dist.is_available() and dist.is_initialized()):
            raise UserError(
                "A GroupIndex needs a process group. There is none.\n"
                "Start the processes with torchrun, and call infoflow.flow.processes() first."
            )
        self.index, self.shard, self._group = index, shard, group
        held = self._exchange(shard)
        whole = {(one.of, one.total, one.whole) for one in held}
        if len(whole) > 1 or sorted(one.number for one in held) != list(range(shard.of)):
            given = ", ".join(f"{one.number} of {one.of}" for one in held)
            raise UserError(
                f"The processes of a group must hold all shards of one store, each once. Got {given} from "
                f"{len({one.whole for one in held})} stores.\nStart as many processes as there are shards."
            )

    def __len__(self) -> int:
        return self.shard.total

    def search(self, queries: Any, k: int, exclude: Excluded | None = None) -> Found:
        """The k best passages of each of this process's queries, with ids of the whole store.

        Args:
            queries: Input of the shard's index: vectors, or terms.
            k: Number of results, the same in all processes.
            exclude: Ids to exclude for each query.

        Raises:
            UserError: As in the index's own search, in any process; or the processes use different k.
        """
        here = queries.detach().cpu() if isinstance(queries, Tensor) else queries
        asked = self._all(lambda: (here, k, check_search(k, len(here), exclude)))
        if len({k for _, k, _ in asked}) > 1:
            raise UserError(f"All processes must request the same k. Got {', '.join(str(k) for _, k, _ in asked)}.")
        found = self._all(lambda: [self._own(*one) for one in asked])
        rank = dist.get_rank(self._group)
        return merged([answers[rank] for answers in found], k)

    def _own(self, queries: Any, k: int, excluded: list[set[int]]) -> Found:
        return search_shard(self.index, self.shard.number, self.shard.of, queries, k, excluded)

    def _all(self, make: Callable[[], T]) -> list[T]:
        """The values made by each process, in order; if one fails, all raise its error, and none waits."""
        try:
            made: T | str = make()
        except UserError as error:
            made = str(error)
        gathered = self._exchange(made)
        for one in gathered:
            if isinstance(one, str):
                raise UserError(one)
        return gathered

    def _exchange(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * dist.get_world_size(self._group)
        dist.all_gather_object(values, value, group=self._group)
        return values
