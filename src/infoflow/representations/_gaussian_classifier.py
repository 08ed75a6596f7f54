"""A linear classifier, fitted in closed form: the states of each label are Gaussian with a shared covariance."""

# K label

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Float64, Int64
from torch import Tensor

from ._views import sums_by

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
    weights: Float32[Tensor, "twice_width label"]  # coefficients of z² and z
    bias: Float32[Tensor, " label"]
    log_prior: Float32[Tensor, " label"]

    def log_probabilities(
        self, states: Float32[Tensor, "token width"], labels: Int64[Tensor, " token"], temperatures: tuple[float, ...]
    ) -> Float32[Tensor, "temperature token"]:
        """The log-probability of each state's own label, before mixing with the labels' frequencies."""
        found = []
        for start in range(0, len(states), _CHUNK):
            z = (states[start : start + _CHUNK] - self.mean) @ self.whitening
            density = torch.addmm(self.bias, torch.cat([z.square(), z], dim=1), self.weights)
            own = labels[start : start + _CHUNK, None]
            for temperature in temperatures:
                logits = torch.add(self.log_prior, density, alpha=temperature)
                logits.sub_(logits.amax(1, keepdim=True)).clamp_(min=_LEAST_LOGIT)
                found.append(logits.gather(1, own)[:, 0] - logits.exp_().sum(1).log())
        parts = [torch.cat(found[index :: len(temperatures)]) for index in range(len(temperatures))]
        return torch.stack(parts)

    def mixed(
        self, log_probability: Float32[Tensor, "*part token"], labels: Int64[Tensor, " token"], floor: float
    ) -> Float64[Tensor, "*part token"]:
        """The log-probabilities after mixing with the labels' frequencies."""
        prior = self.log_prior[labels].double()
        return torch.logaddexp(log_probability.double() + np.log1p(-floor), prior + np.log(floor))


@dataclass(frozen=True, slots=True, eq=False)
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
        return cls(mean, means, count, centred.T @ centred / max(len(states) - int((count > 0).sum()), 1))

    @property
    def seen(self) -> int:
        return int((self.count > 0).sum())

    @property
    def scale(self) -> float:
        """The median variance of the principal axes whose variance is not 0: the unit of the ridge.

        Large variance in a few directions, such as those of the position, would raise the mean, and the ridge would
        then hide all other directions.
        """
        total = self.count.sum()
        within = self.within * max(float(total) - self.seen, 1) / total
        variances = torch.linalg.eigvalsh(within + self.means.T @ (self.means * self.count[:, None]) / total)
        known = variances[variances > 1e-10 * variances[-1]]
        return float(known.median()) if len(known) else 1.0

    def classifier(self, ridge: float) -> GaussianClassifier:
        """The classifier with `ridge` times `scale` added to every variance within labels."""
        count, total = self.count, self.count.sum()
        covariance = self.within + ridge * self.scale * torch.eye(len(self.mean), dtype=torch.float64)
        whitening = torch.linalg.inv(torch.linalg.cholesky(covariance)).T
        between = self.means @ whitening
        whitening = whitening @ torch.linalg.eigh(between.T @ (between * count[:, None]) / total).eigenvectors
        means = self.means @ whitening
        squares = (count[:, None] * means**2).sum(0)
        psi = ((squares - self.seen) / (total - (count**2).sum() / total).clamp(min=1)).clamp(min=1e-6)
        uncertain = psi / (1 + count[:, None] * psi)
        expected = count[:, None] * uncertain * means
        precision = 1 / (1 + uncertain)
        bias = -0.5 * ((expected**2 * precision).sum(1) + torch.log(1 + uncertain).sum(1))
        prior = (count + 0.5) / (count + 0.5).sum()
        weights = torch.cat([-0.5 * precision, expected * precision], dim=1).T
        parts = (self.mean, whitening, weights, bias, prior.log())
        return GaussianClassifier(*(part.float().contiguous() for part in parts))
