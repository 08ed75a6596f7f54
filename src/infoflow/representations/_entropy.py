"""Entropy and mutual information of counts, from one pass for all bootstrap blocks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int
from scipy.special import digamma, exp1, xlogy
from torch import Tensor

from infoflow.foundation import NUM_BLOCKS, UserError

from ._views import as_labels

EntropyEstimator = Literal["plug-in", "miller-madow", "grassberger", "chao-shen", "chao-wang-jost"]
"""Estimator of entropy from counts; all but the first correct for small counts."""


def entropy(counts: np.ndarray, estimator: str = "plug-in") -> float:
    r"""Entropy of the distribution that `counts` were drawn from, in nats.

    With n the counts, N their sum, f₁ and f₂ the numbers of labels seen once and twice:

    | estimator        | formula                                                                                   |
    |------------------|-------------------------------------------------------------------------------------------|
    | `plug-in`        | $-\sum \frac nN \ln \frac nN$: biased downwards by about (labels − 1) / 2N                |
    | `miller-madow`   | plug-in plus this bias, for the labels that were seen                                     |
    | `grassberger`    | $\ln N - \frac1N \sum n\,G(n)$, with G below                                              |
    | `chao-shen`      | $-\sum \tilde p \ln \tilde p \,/\, (1-(1-\tilde p)^N)$, $\tilde p = (1 - f_1/N)\,n/N$     |
    | `chao-wang-jost` | $\sum \frac nN(\psi(N)-\psi(n))$ plus the part of unseen labels, estimated from f₁ and f₂ |

    $$ G(n) = \psi(n) + \tfrac{(-1)^n}{2}\left(\psi(\tfrac{n+1}{2}) - \psi(\tfrac{n}{2})\right) $$

    Args:
        counts: How often each label was seen.
        estimator: One of the names in the table.

    Raises:
        UserError: There is no such estimator.

    Source: [@miller1955]; [@grassberger2003]; [@chao2003]; [@chao2013].
    """
    if estimator not in _ESTIMATORS:
        raise UserError(f"estimator must be one of {', '.join(_ESTIMATORS)}. Got {estimator}.")
    counts = counts[counts > 0]
    return _ESTIMATORS[estimator](counts) if len(counts) else float("nan")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class CountSums:
    """Statistics of counts n for the estimator of Chao, Wang and Jost: sums over labels, one per set of counts.

    When only a few counts change (because a block is left out), the sums are updated from the labels concerned.
    """

    total: np.ndarray  # Σ n
    log: np.ndarray  # Σ n ln n, for the plug-in estimate
    psi: np.ndarray  # Σ n ψ(n)
    once: np.ndarray  # labels that were seen once
    twice: np.ndarray

    @classmethod
    def of(cls, counts: np.ndarray) -> "CountSums":
        """Sums of one set of counts."""
        return cls(**{name: np.asarray(term(counts).sum()) for name, term in TERMS.items()})

    @property
    def plug_in(self) -> np.ndarray:
        """The plug-in entropy in nats; NaN without counts."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.log(self.total) - self.log / self.total)

    @property
    def chao_wang_jost(self) -> np.ndarray:
        r"""The entropy of Chao, Wang and Jost in nats; NaN without counts.

        $$ \psi(N) - \frac1N\sum n\psi(n) + \frac{f_1}N (1-A)^{1-N} \sum_{r \ge N} \frac{(1-A)^r}{r} $$

        with $A = 2f_2 / ((N-1)f_1 + 2f_2)$, the expected share of a label that was seen once, and $2 / ((N-1)(f_1-1) +
        2)$ if no label was seen twice. The last sum is $\int_N^\infty e^{-\lambda r}/r\,dr$ plus half its first term,
        up to 1/N², where $e^{-\lambda} = 1-A$.
        """
        total, once = (np.asarray(each, dtype=np.float64) for each in (self.total, self.once))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            seen = digamma(total) - self.psi / total
            share = self._share_of_one()
            rate = -np.log1p(-share)
            unseen = once / total * (1 - share) * (_scaled_exp1(np.asarray(total * rate)) + 0.5 / total)
        return np.asarray(seen + np.where((once > 0) & (share < 1), unseen, 0.0))

    @property
    def tail(self) -> np.ndarray:
        r"""Bias that may remain in `chao_wang_jost` after extrapolation over halves, as a standard error in nats.

        With $U(r) = \sum_i p_i (1-p_i)^r$, the probability of labels that do not occur in r draws, the entropy is
        $\sum_{r \ge 1} U(r) / r$, and N draws carry no information about the terms from N on. Good and Turing estimate
        $U(N) = f_1 / N$ and its slope $b = -\mathrm d \ln U / \mathrm d \ln N = 2 f_2 / f_1$. If U continues as an
        exponential through both, as in `chao_wang_jost`, these terms add up to $U e^b E_1(b)$, which is the smallest
        possible value. If U continues as a power law, to which Zipf tails are close, they add up to $U / b$. The tail
        is b times their difference:

        $$ U \left(1 - b\, e^b E_1(b)\right) $$

        In 72 settings of known distributions with Zipf tails and at least 20 tokens per cluster, the bias left after
        extrapolation over halves was at most 1.9 times the tail (`experiments/validation/information`).

        Source: [@good1953] for U; [@chao2013] for the series.
        """
        total, once = (np.asarray(each, dtype=np.float64) for each in (self.total, self.once))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            slope = -total * np.log1p(-self._share_of_one())
            left = once / total * (1 - slope * _scaled_exp1(np.asarray(slope)))
        return np.asarray(np.where((once > 0) & np.isfinite(left), left, 0.0))

    def _share_of_one(self) -> np.ndarray:
        """A in `chao_wang_jost`."""
        total = np.asarray(self.total, dtype=np.float64)
        once, twice = np.asarray(self.once, dtype=np.float64), 2.0 * np.asarray(self.twice)
        return np.where(twice > 0, twice / ((total - 1) * once + twice), 2 / ((total - 1) * (once - 1) + 2))


def _scaled_exp1(x: np.ndarray) -> np.ndarray:
    r"""$e^x E_1(x)$ to 1e-15: the product unless it overflows or underflows, otherwise $\sum_k (-1)^k k!/x^{k+1}$.

    `scipy.special.hyperu(1, 1, x)`, the same function, takes up to a hundred times as long and is off by 4e-10.
    """
    series = np.zeros_like(x)
    for k in range(14, 0, -1):
        series = k / x * (1 - series)
    return np.where(x > 100, (1 - series) / x, np.exp(x) * exp1(x))


TERMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "total": lambda counts: counts,
    "log": lambda counts: xlogy(counts, counts),
    "psi": lambda counts: counts * digamma(np.maximum(counts, 1)),  # 0 for counts of 0
    "once": lambda counts: counts == 1,
    "twice": lambda counts: counts == 2,
}
"""The sums of `CountSums`, as functions of each count."""


def _grassberger(counts: np.ndarray) -> float:
    signs = np.where(counts % 2 == 0, 0.5, -0.5)
    gains = digamma(counts) + signs * (digamma((counts + 1) / 2) - digamma(counts / 2))
    return float(np.log(counts.sum()) - (counts * gains).sum() / counts.sum())


def _chao_shen(counts: np.ndarray) -> float:
    total = counts.sum()
    once = min((counts == 1).sum(), total - 1)  # if all labels were seen only once, no share would remain for them
    shares = (1 - once / total) * counts / total
    seen = -np.expm1(total * np.log1p(-np.minimum(shares, 1 - 1e-15)))  # probability of being seen at all
    return float(-(xlogy(shares, shares) / seen).sum())


_ESTIMATORS: dict[str, Callable[[np.ndarray], float]] = {
    "plug-in": lambda counts: float(CountSums.of(counts).plug_in),
    "miller-madow": lambda counts: float(CountSums.of(counts).plug_in) + (len(counts) - 1) / (2 * int(counts.sum())),
    "grassberger": _grassberger,
    "chao-shen": _chao_shen,
    "chao-wang-jost": lambda counts: float(CountSums.of(counts).chao_wang_jost),
}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockCounts:
    """Count of each label in each block, without zeros."""

    label: Int[np.ndarray, " entry"]  # 0..m−1, ascending
    block: Int[np.ndarray, " entry"]  # 0..63
    count: Int[np.ndarray, " entry"]

    @classmethod
    def of(cls, labels: Int[np.ndarray, " token"], blocks: Int[np.ndarray, " token"]) -> "BlockCounts":
        entries, count = np.unique(labels.astype(np.int64) * NUM_BLOCKS + blocks, return_counts=True)
        label, block = np.divmod(entries, NUM_BLOCKS)
        compact = np.cumsum(np.concatenate([[0], label[1:] != label[:-1]])) if len(label) else label
        return cls(label=compact, block=block, count=count)

    def within(self, blocks: Bool[np.ndarray, " block"]) -> "BlockCounts":
        """Counts of the chosen blocks only."""
        kept = blocks[self.block]
        return BlockCounts(label=self.label[kept], block=self.block[kept], count=self.count[kept])

    def sums(self) -> CountSums:
        """Sums over all blocks."""
        return CountSums.of(self._totals())

    def sums_without_each(self) -> CountSums:
        """Sums without each block, (64,). Leaving out a block changes only the terms of its labels."""
        totals = self._totals()
        before = totals[self.label]
        after = before - self.count

        def without(name: str) -> np.ndarray:
            term = TERMS[name]
            change = np.bincount(self.block, weights=term(after) * 1.0 - term(before), minlength=NUM_BLOCKS)
            return term(totals).sum() + change

        return CountSums(**{name: without(name) for name in TERMS})

    def _totals(self) -> Int[np.ndarray, " label"]:
        return np.bincount(self.label, weights=self.count).astype(np.int64)


def mutual_information(
    a: Tensor | np.ndarray | list, b: Tensor | np.ndarray | list, estimator: str = "plug-in"
) -> float:
    r"""Mutual information of two label vectors, in nats.

    $$ I = H(A) + H(B) - H(A, B) = \sum_{a,b} p(a,b) \ln \frac{p(a,b)}{p(a)\,p(b)} $$

    The plug-in estimate uses shares as probabilities. For N observations it is too high by about (m_ab − m_a − m_b + 1)
    / 2N, where m are the numbers of labels and of pairs that occur. The other estimators correct the three entropies
    (see `entropy`), and may be negative.

    Args:
        a: (token,) labels of any kind.
        b: (token,) labels of the same tokens.
        estimator: `"plug-in"`, `"miller-madow"`, `"grassberger"`, `"chao-shen"` or `"chao-wang-jost"`.

    Returns:
        Information; the plug-in estimate is in [0, min(H(a), H(b))].

    Raises:
        UserError: The vectors are empty or differ in length, or there is no such estimator.

    >>> round(mutual_information([0, 0, 1, 1], [5, 5, 7, 7]), 4)
    0.6931
    """
    labels_a = as_labels(a, "a")
    labels_b = as_labels(b, "b", len(labels_a))
    cells = labels_a.astype(np.int64) * (int(labels_b.max()) + 1) + labels_b
    of_a, of_b, of_cells = (entropy(_counts(labels), estimator) for labels in (labels_a, labels_b, cells))
    information = of_a + of_b - of_cells
    return max(0.0, information) if estimator == "plug-in" else information  # rounding may leave −1e-16


def _counts(labels: Int[np.ndarray, " token"]) -> Int[np.ndarray, " label"]:
    return np.unique(labels, return_counts=True)[1]
