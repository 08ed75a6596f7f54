"""A linear classifier, fitted in closed form: the states of each label are Gaussian with a shared covariance."""

# A column of the classifier is a label that was seen while fitting, or, as the last one, all labels that were not.

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from ._views import gram, sums_by

_CHUNK = 256  # number of rows whose logits fit in the cache
_LEAST_LOGIT = -80.0  # relative to the largest logit; exponentials of lower logits are denormal and many times slower


@dataclass(frozen=True, slots=True, eq=False)
class GaussianClassifier:
    r"""A classifier with Gaussian states for each label, one covariance for all, and Gaussian label means.

    With z the state, whitened by the covariance within labels and rotated to the principal axes between them, and
    $\psi_d$ the variance of the labels' means on axis d, a label with n fitted states of mean $\bar z$ predicts

    $$ \ln p(z \mid k) = -\tfrac12 \sum_d \frac{(z_d - m_d)^2}{1 + v_d} + \ln(1 + v_d) + \text{const},\quad
    v_d = \frac{\psi_d}{1 + n \psi_d},\quad m_d = n v_d \bar z_d $$

    This takes account of the fact that the mean of a rarely seen label is uncertain [@ioffe2006]. Since real states
    have heavier tails than Gaussians, the log-densities are multiplied by a temperature, and probabilities are mixed
    with the labels' frequencies. With many states per label the classifier is linear in z.
    """

    mean: Float32[Tensor, " width"]
    whitening: Float32[Tensor, "width width"]
    columns: Int64[Tensor, " label"]  # the column of each label
    labels: Float32[Tensor, " column"]  # how many labels share it
    counts: Int64[Tensor, " column"]  # its row in `squares`, which is equal for columns of equally many states
    squares: Float32[Tensor, "distinct width"]  # coefficients of z²
    weights: Float32[Tensor, "column width"]  # coefficients of z
    bias: Float32[Tensor, " column"]
    log_prior: Float32[Tensor, " column"]

    def log_probabilities(
        self, states: Float32[Tensor, "token width"], labels: Int64[Tensor, " token"], temperatures: tuple[float, ...]
    ) -> Float32[Tensor, "temperature token"]:
        """The log-probability of each state's own label, before mixing with the labels' frequencies."""
        found = []
        for start in range(0, len(states), _CHUNK):
            z = (states[start : start + _CHUNK] - self.mean) @ self.whitening
            density = torch.addmm(self.bias, z, self.weights.T)
            density += (z.square() @ self.squares.T)[:, self.counts]
            own = self.columns[labels[start : start + _CHUNK], None]
            for temperature in temperatures:
                logits = torch.add(self.log_prior, density, alpha=temperature)
                logits.sub_(logits.amax(1, keepdim=True)).clamp_(min=_LEAST_LOGIT)
                found.append(logits.gather(1, own)[:, 0] - (logits.exp_() @ self.labels).log())
        parts = [torch.cat(found[index :: len(temperatures)]) for index in range(len(temperatures))]
        return torch.stack(parts)

    def mixed(
        self, log_probability: Float32[Tensor, "*part token"], labels: Int64[Tensor, " token"], floor: float
    ) -> Float64[Tensor, "*part token"]:
        """The log-probabilities after mixing with the labels' frequencies."""
        prior = self.log_prior[self.columns[labels]].double()
        return torch.logaddexp(log_probability.double() + np.log1p(-floor), prior + np.log(floor))


@dataclass(frozen=True, eq=False)
class LabelledMoments:
    """The statistics of the fitted states that a classifier needs, for any ridge."""

    mean: Float64[Tensor, " width"]
    means: Float64[Tensor, "label width"]  # of each label's states, minus the overall mean; 0 for labels without states
    count: Float64[Tensor, " label"]
    within: Float64[Tensor, "width width"]  # covariance within labels

    @classmethod
    def of(
        cls, states: Float32[Tensor, "token width"], labels: Int64[Tensor, " token"], num_labels: int
    ) -> "LabelledMoments":
        count = torch.bincount(labels, minlength=num_labels).double()
        centred = states.double()
        mean = centred.mean(0)
        centred = centred - mean
        means = sums_by(labels, centred, num_labels)
        means /= count.clamp(min=1)[:, None]
        centred -= means[labels]
        return cls(mean, means, count, gram(centred) / max(len(states) - int((count > 0).sum()), 1))

    @property
    def seen(self) -> int:
        return int((self.count > 0).sum())

    @cached_property
    def between(self) -> Float64[Tensor, "width width"]:
        """Covariance of the labels' means, weighted by their numbers of states."""
        return self.means.T @ (self.means * self.count[:, None]) / self.count.sum()

    @cached_property
    def scale(self) -> float:
        """The median variance of the principal axes whose variance is not 0: the unit of the ridge.

        Large variance in a few directions, such as those of the position, would raise the mean, and the ridge would
        then hide all other directions.
        """
        total = self.count.sum()
        within = self.within * max(float(total) - self.seen, 1) / total
        variances = torch.linalg.eigvalsh(within + self.between)
        known = variances[variances > 1e-10 * variances[-1]]
        return float(known.median()) if len(known) else 1.0

    def classifier(self, ridge: float) -> GaussianClassifier:
        """The classifier with `ridge` times `scale` added to every variance within labels."""
        total, unseen = self.count.sum(), self.count == 0
        identity = torch.eye(len(self.mean), dtype=torch.float64)
        triangle = torch.linalg.cholesky(self.within + ridge * self.scale * identity)
        whitening = torch.linalg.solve_triangular(triangle, identity, upper=False).T
        variances, axes = torch.linalg.eigh(whitening.T @ self.between @ whitening)
        whitening = whitening @ axes
        psi = ((total * variances - self.seen) / (total - (self.count**2).sum() / total).clamp(min=1)).clamp(min=1e-6)
        # One column for each seen label, and one for all others.
        labels = torch.cat([(~unseen).nonzero()[:, 0], unseen.nonzero()[:1, 0]])
        columns = ((~unseen).cumsum(0) - 1).masked_fill(unseen, len(labels) - 1)
        distinct, counts = self.count[labels].unique(return_inverse=True)
        uncertain = psi / (1 + distinct[:, None] * psi)
        precision = 1 / (1 + uncertain)
        expected = (distinct[:, None] * uncertain)[counts] * (self.means[labels] @ whitening)
        weights = expected * precision[counts]
        bias = -0.5 * ((expected * weights).sum(1) + torch.log(1 + uncertain).sum(1)[counts])
        prior = (self.count[labels] + 0.5) / (self.count + 0.5).sum()
        shared = columns.bincount(minlength=len(labels))
        parts = (self.mean, whitening, shared, -0.5 * precision, weights, bias, prior.log())
        mean, whitening, shared, *others = (part.float().contiguous() for part in parts)
        return GaussianClassifier(mean, whitening, columns, shared, counts, *others)
