"""Projection-weighted canonical correlation."""

from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError, current_display

from ._cca import Canonical, canonical_of
from ._views import Matrix

SIDES = ("mean", "x", "y")

ROWS_PER_DIMENSION = 10
"""With fewer rows per dimension, any two views look similar."""
LEAST_PER_DIMENSION = 2
"""With at most this many rows per dimension, several correlations of any two views are exactly 1."""


def pwcca(x: Matrix, y: Matrix, side: str = "mean") -> float:
    r"""Similarity of two views: canonical correlations weighted by how much of a view they explain.

    $$ \mathrm{PWCCA} = \frac{\sum_i \alpha_i \rho_i}{\sum_i \alpha_i}, \qquad
       \alpha_i = \sum_j |\langle h_i, x_j \rangle| $$

    | symbol   | here                                                       | space             |
    |----------|------------------------------------------------------------|-------------------|
    | $\rho_i$ | canonical correlations (`cca_correlations`)                | [0, 1]            |
    | $h_i$    | canonical variates of the weighting view, orthonormal      | $\mathbb R^n$     |
    | $x_j$    | centred raw columns of the weighting view                  | $\mathbb R^n$     |

    Invariant to invertible affine maps of the view that does *not* weight; the weights change under linear maps,
    even rotations, of the one that does. Exactly 1 for `y = x @ a + b` with an invertible `a`. The distance is
    `1 - pwcca(x, y)`.

    Biased upwards for few rows n: for independent views about $0.85 \sqrt{d/n}$, and 1 for n ≤ d. Compare only
    values with equal n, use n ≥ 20 d, and look at the value of shuffled rows. For n ≤ width_x + width_y several
    correlations are 1 and the weights among them depend on the choice of directions.

    Args:
        x: (token, width_x), float32 or float64; computed in float64.
        y: (token, width_y), the same tokens in the same order.
        side: The weighting view; `"mean"` is the mean of both values. [@morcos2018] weight by the narrower view.

    Returns:
        Similarity in [0, 1].

    Raises:
        UserError: Unknown side, views of different length, not finite, or without variation.

    Warns when n < 10 d, with d the larger rank.

    Source: [@morcos2018]; the directions are the exact canonical variates, which the authors' released code does
    not compute.

    >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> round(pwcca(x, x @ torch.tensor([[1.0, 2, 0], [0, 1, 0], [3, 0, 1]])), 6)
    1.0
    """
    check_side(side)
    canonical = canonical_of(x, y)
    warn_few_rows(len(x), canonical.largest_rank)
    return weighted_mean(canonical, side)


def weighted_mean(canonical: Canonical, side: str) -> float:
    """PWCCA from canonical correlations and their weights; 0 if a view is constant."""

    def weigh(weights: Float[Tensor, " variate"]) -> float:
        return float(weights @ canonical.correlations / weights.sum()) if len(weights) else 0.0

    if side == "mean":
        return (weigh(canonical.weights_x) + weigh(canonical.weights_y)) / 2
    return weigh(canonical.weights_x if side == "x" else canonical.weights_y)


def check_side(side: str) -> None:
    if side not in SIDES:
        raise UserError(f'side must be "mean", "x" or "y": the view whose columns weight. Got {side}.')


def too_few_rows(num_rows: int, width: int) -> bool:
    """Whether several correlations of any two views of this width are exactly 1, whatever the data."""
    return num_rows <= LEAST_PER_DIMENSION * width


def warn_few_rows(num_rows: int, width: int) -> None:
    """Warn if PWCCA is biased (fewer than ten rows per dimension) or meaningless (`too_few_rows`)."""
    if too_few_rows(num_rows, width):
        current_display().warn(
            f"PWCCA of {num_rows:,} tokens in {width:,} dimensions is biased towards similarity: it is near 1 whatever "
            "the states are, so tables leave it out (NaN). It needs more than "
            f"{LEAST_PER_DIMENSION * width:,} tokens, better {2 * ROWS_PER_DIMENSION * width:,}: give a larger corpus, "
            "or raise analysis.sample_bytes if that cut the "
            "sample."
        )
    elif num_rows < ROWS_PER_DIMENSION * width:
        current_display().warn(
            f"PWCCA of {num_rows} tokens in {width} dimensions is biased towards similarity: it wants at least "
            f"{ROWS_PER_DIMENSION * width} tokens, better {2 * ROWS_PER_DIMENSION * width}. "
            "Use more tokens, and compare only values with equal counts."
        )
