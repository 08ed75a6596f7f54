"""What the nearest occurrences of the same token have in common; one search per token serves all aspects."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.special import gammainc
from torch import Tensor

from infoflow.foundation import NUM_BLOCKS, UserError

from ._nearest import check_neighbours, scored
from ._views import Matrix, States, as_labels, as_view

UNKNOWN = -1
_EQUAL = 1e-6  # vectors whose difference is at most this share of their norm are equal up to float32 rounding

Known = Bool[np.ndarray, " token"]
_SCORES_AT_ONCE = 2**22  # 16 MB in float32
_SPARE = 2
"""Neighbours searched per neighbour needed, so that a subset of half the pool usually finds enough of its own."""


class TokenAspect(NamedTuple):
    """Values by which occurrences are compared; a row with `UNKNOWN` is neither a query nor a neighbour."""

    values: Int[np.ndarray, " token"]
    compare: Literal["same", "distance"]


class PoolScore(NamedTuple):
    """One token's statistic."""

    value: float
    chance: float  # the statistic over all pairs of occurrences
    count: int  # occurrences
    effects: Float[np.ndarray, " block"]
    """The effect of each bootstrap block's occurrences on the value, to first order; the sum is 0."""
    pools: int = 1  # number of tokens averaged over
    spread: float = 0.0  # standard deviation due to the choice of tokens with enough occurrences


class PoolRules(NamedTuple):
    """The number of neighbours, the distance, and the minimum size of pools."""

    k: int
    few: str
    metric: str
    least: int  # occurrences that a pool must have

    @classmethod
    def of(cls, k: int, few: str, metric: str, minimum: int | None) -> "PoolRules":
        """Checked rules; by default "require" needs 2k + 1 occurrences."""
        check_neighbours(k, few, metric)
        if minimum is not None and minimum < (k + 1 if few == "require" else 2):
            raise UserError(
                f'minimum must be at least {k + 1 if few == "require" else 2} with k = {k} and few="{few}". '
                f"Got {minimum}. With k + 1 occurrences all others are neighbours, as by chance."
            )
        return cls(k, few, metric, minimum or (2 * k + 1 if few == "require" else 2))


def within_token_agreement(
    x: Matrix,
    tokens: Tensor | np.ndarray | list,
    labels: Tensor | np.ndarray | list,
    k: int = 50,
    few: str = "require",
    metric: str = "cosine",
    minimum: int | None = None,
) -> float:
    r"""How often the nearest occurrences *of the same token* carry the same label: a tag, or the token before.

    $$ \frac{1}{|T|} \sum_{t \in T} \frac{1}{n_t} \sum_{i \in t} \frac{1}{k} \sum_{j \in N_k^t(i)} [y_i = y_j] $$

    $N_k^t(i)$ are the k nearest of the other occurrences of token t; T are the tokens with enough occurrences:

    | `few`                  | tokens T                        | neighbours          |
    |------------------------|---------------------------------|---------------------|
    | `"require"`            | `minimum` occurrences or more   | k                   |
    | `"cap"`, `"normalise"` | 2 occurrences or more           | min(k, n_t − 1)     |

    The last two give the same value: if k ≥ n_t − 1, all other occurrences are neighbours, and dividing by their share
    gives the mean over them. Such a token's score does not depend on vectors, which is why `minimum` is 2k + 1.

    Args:
        x: (token, width), float32 or float64.
        tokens: (token,) token ids.
        labels: (token,) labels of any kind.
        k: Number of neighbours.
        few: What to do with rare tokens.
        metric: `"cosine"` or `"euclidean"`; the paper does not say which it used.
        minimum: Minimum number of occurrences with `"require"`; default: 2k + 1.

    Returns:
        Fraction in [0, 1]. Random neighbours give Σ p² within each token, averaged in the same way. If all vectors of a
            token are equal, all its occurrences are equally near, and its score is at chance.

    Raises:
        UserError: Impossible settings, or no token with enough occurrences.

    Source: [@voita2019evolution].
    """
    return _average(x, tokens, TokenAspect(as_labels(labels, "labels"), "same"), PoolRules.of(k, few, metric, minimum))


def position_distance(
    x: Matrix,
    tokens: Tensor | np.ndarray | list,
    positions: Tensor | np.ndarray | list,
    k: int = 50,
    few: str = "require",
    metric: str = "cosine",
    minimum: int | None = None,
) -> float:
    r"""How far apart in their sentences the nearest occurrences of the same token are.

    $$ \frac{1}{|T|} \sum_{t \in T} \frac{1}{n_t} \sum_{i \in t} \frac{1}{k} \sum_{j \in N_k^t(i)} |p_i - p_j| $$

    Symbols and arguments are those of `within_token_agreement`.

    Args:
        x: (token, width), float32 or float64.
        tokens: (token,) token ids.
        positions: (token,) index of each occurrence in its sentence, from 0.

    Returns:
        Distance in tokens; low if positions are kept. Random neighbours give the mean over all pairs of a token.

    Raises:
        UserError: Impossible settings, a negative position, or no token with enough occurrences.

    Source: [@voita2019evolution].
    """
    rules = PoolRules.of(k, few, metric, minimum)
    values = np.asarray(positions)
    if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer) or (len(values) and values.min() < 0):
        raise UserError("positions must be whole numbers from 0 on, one per row.")
    return _average(x, tokens, TokenAspect(values.astype(np.int64), "distance"), rules)


def token_pools(tokens: Int[np.ndarray, " token"], least: int) -> list[Int[np.ndarray, " row"]]:
    """The rows of each token with at least `least` occurrences."""
    order = np.argsort(tokens, kind="stable")
    starts = np.flatnonzero(np.diff(tokens[order])) + 1
    return [rows for rows in np.split(order, starts) if len(rows) >= least]


def pool_scores(
    x: States,
    aspects: Mapping[str, TokenAspect],
    blocks: Int[np.ndarray, " token"],
    rules: PoolRules,
) -> dict[str, PoolScore]:
    """Every aspect's statistic in one pool, from its states; aspects with too few known occurrences are absent."""
    known = {name: aspect.values != UNKNOWN for name, aspect in aspects.items()}
    known = {name: mask for name, mask in known.items() if mask.sum() >= rules.least}
    neighbours = _neighbours(x, known.values(), rules)
    scores = {}
    for name, mask in known.items():
        rows, found = np.flatnonzero(mask), neighbours[mask.tobytes()]
        among_all = _among_all(aspects[name], rows)
        # If all vectors are equal, all other occurrences are equally near, and effects cancel.
        each, pulls = (among_all, 2 * among_all) if found is None else _scores(aspects[name], rows, found, rules.k)
        effects = np.bincount(blocks[rows], weights=pulls - pulls.mean(), minlength=NUM_BLOCKS) / len(rows)
        scores[name] = PoolScore(float(each.mean()), float(among_all.mean()), len(rows), effects)
    return scores


def averaged(scores: Sequence[PoolScore], least: int) -> PoolScore:
    r"""The mean over tokens, each with the same weight; numbers of occurrences are summed.

    In another text, other tokens would have `least` occurrences. With m_t the statistic of a token with c_t
    occurrences, and p_t the probability that a Poisson variable of mean c_t reaches `least`, this adds the variance

    $$ s^2 = \frac{2}{T^2} \sum_t p_t (1 - p_t)\,(m_t - \bar m)^2 $$

    The factor 2 accounts for tokens that just missed `least`, which are at least as many as those that just reached it.
    Tokens with many more occurrences than `least` add nothing.
    """
    values = np.array([score.value for score in scores])
    kept = gammainc(least, np.array([score.count for score in scores]))
    around = values - values.mean()
    return PoolScore(
        value=float(values.mean()),
        chance=float(np.mean([score.chance for score in scores])),
        count=sum(score.count for score in scores),
        effects=np.mean([score.effects for score in scores], axis=0),
        pools=len(scores),
        spread=float(np.sqrt(2 * (kept * (1 - kept) * around**2).sum()) / len(scores)),
    )


def _average(x: Matrix, tokens: Tensor | np.ndarray | list, aspect: TokenAspect, rules: PoolRules) -> float:
    view = as_view(x, "x", dtype=None)
    ids = as_labels(tokens, "tokens", len(view))
    if len(aspect.values) != len(view):
        raise UserError(f"There must be one label or position per row. Got {len(aspect.values)} for {len(view)} rows.")
    pools = token_pools(ids, rules.least)
    if not pools:
        raise UserError(
            f'No token occurs {rules.least} times, as requested. Use more rows, a smaller k or minimum, or few="cap".'
        )
    nowhere = np.zeros(len(view), dtype=np.int64)
    parts = [
        pool_scores(view[torch.from_numpy(rows)], {"": _taken(aspect, rows)}, nowhere[rows], rules) for rows in pools
    ]
    return averaged([part[""] for part in parts], rules.least).value


def _taken(aspect: TokenAspect, rows: Int[np.ndarray, " row"]) -> TokenAspect:
    return aspect._replace(values=aspect.values[rows])


def _neighbours(
    x: States, masks: Iterable[Known], rules: PoolRules
) -> dict[bytes, Int[np.ndarray, "query neighbour"] | None]:
    """The k + 1 nearest neighbours (one extra for error bars) of each mask's rows within it; None if all are equal."""
    subsets = {mask.tobytes(): torch.from_numpy(mask) for mask in masks}
    varied = {key: subset for key, subset in subsets.items() if not _all_equal(x[subset])}
    found = nearest_in_subsets(x, rules.k + 1, rules.metric, list(varied.values())) if varied else []
    return dict.fromkeys(subsets) | dict(zip(varied, (each.numpy() for each in found), strict=True))


def _scores(
    aspect: TokenAspect, rows: Int[np.ndarray, " query"], neighbours: Int[np.ndarray, "query neighbour"], k: int
) -> tuple[Float[np.ndarray, " query"], Float[np.ndarray, " query"]]:
    """Each row's score, and the row's effect on the sum of all scores.

    An occurrence affects the sum as a query and as a neighbour of others; without it, they would have the next nearest
    one instead. Without the second effect, intervals would be too narrow, some by half.
    """
    k = min(k, neighbours.shape[1])
    shared = _compared(aspect, aspect.values[rows, None], aspect.values[neighbours])
    each = shared[:, :k].mean(axis=1)
    next_nearest = shared[:, k] if shared.shape[1] > k else each
    as_neighbours = (shared[:, :k] - next_nearest[:, None]) / k
    pulls = np.bincount(neighbours[:, :k].ravel(), weights=as_neighbours.ravel(), minlength=len(aspect.values))
    return each, each + pulls[rows]


def _compared(aspect: TokenAspect, values: np.ndarray, others: np.ndarray) -> Float[np.ndarray, "query neighbour"]:
    compared = values == others if aspect.compare == "same" else np.abs(values - others)
    return compared.astype(np.float64)


def _among_all(aspect: TokenAspect, rows: Int[np.ndarray, " query"]) -> Float[np.ndarray, " query"]:
    """Each row's score if all other rows were its neighbours."""
    values, number, counts = np.unique(aspect.values[rows], return_inverse=True, return_counts=True)
    if aspect.compare == "same":
        return (counts[number] - 1) / (len(rows) - 1)
    below = np.concatenate([[0], counts.cumsum()[:-1]])
    sum_below = np.concatenate([[0], (counts * values).cumsum()[:-1]])
    total, size = float((counts * values).sum()), len(rows)
    distances = values * below - sum_below + (total - sum_below) - values * (size - below)
    return distances[number] / (size - 1)


def _all_equal(x: States) -> bool:
    return bool((x - x[0]).norm(dim=1).max() <= _EQUAL * x[0].norm())


def nearest_in_subsets(
    x: States, k: int, metric: str, subsets: Sequence[Bool[Tensor, " token"]]
) -> list[Int[Tensor, "query neighbour"]]:
    """For every row of each subset, the k nearest other rows of the subset (fewer if it is small), nearest first.

    Queries are in the order of the rows; neighbours are row indices of `x`.
    """
    base, offset = scored(x, metric)
    looked_up = min(len(x) - 1, _SPARE * k)
    sizes = [int(subset.sum()) for subset in subsets]
    parts: list[list[Tensor]] = [[] for _ in subsets]
    step = max(1, _SCORES_AT_ONCE // len(x))
    for start in range(0, len(x), step):
        rows = torch.arange(start, min(start + step, len(x)))
        scores = torch.addmm(offset, base[rows], base.mT) if offset is not None else base[rows] @ base.mT
        scores[torch.arange(len(rows)), rows] = -torch.inf
        order = _descending(scores, looked_up)
        for subset, size, found in zip(subsets, sizes, parts, strict=True):
            inside = subset[rows]
            found.append(_in_subset(order[inside], scores, inside, subset, min(k, size - 1)))
    return [torch.cat(found) for found in parts]


def _descending(scores: Float[Tensor, "query token"], num: int) -> Int[Tensor, "query neighbour"]:
    """Columns of the `num` highest scores, highest first.

    On rows of 500 to 1,000 scores NumPy's partition takes 7 to 12 ns per score, `topk` 21 to 30 (measured).
    """
    size = scores.shape[1]
    indices = torch.from_numpy(np.argpartition(scores.numpy(), size - num, axis=1)[:, size - num :].copy())
    return indices.gather(1, scores.gather(1, indices).argsort(dim=1, descending=True))


def _in_subset(
    order: Int[Tensor, "query neighbour"],
    scores: Float[Tensor, "row token"],
    queries: Bool[Tensor, " row"],
    subset: Bool[Tensor, " token"],
    num: int,
) -> Int[Tensor, "query chosen"]:
    """The first `num` of each row's neighbours that are in the subset; searched again for rows with too few."""
    inside = subset[order]
    if bool(inside[:, :num].all()):
        return order[:, :num]
    rank = inside.cumsum(1)
    enough = rank[:, -1] >= num
    chosen = torch.empty(len(order), num, dtype=order.dtype)
    chosen[enough] = order[enough][inside[enough] & (rank[enough] <= num)].view(-1, num)
    if not bool(enough.all()):
        again = scores[queries.nonzero().squeeze(1)[~enough]].masked_fill(~subset, -torch.inf)
        chosen[~enough] = again.topk(num, dim=1).indices
    return chosen
