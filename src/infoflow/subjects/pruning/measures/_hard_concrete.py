"""Gates that are often exactly 0 or 1, with differentiable probabilities."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from infoflow.foundation import UserError

BETA, GAMMA, ZETA, EPSILON = 0.33, -0.1, 1.1, 1e-6
UNDECIDED = 2.4
"""Gates with |log α| below this are neither exactly 0 nor exactly 1 in evaluation."""


class HardConcrete(nn.Module):
    r"""One stochastic gate per head.

    $$ s = \sigma\!\left(\frac{\ln u - \ln(1-u) + \log\alpha}{\beta}\right), \quad
       g = \min(1, \max(0,\, s (\zeta - \gamma) + \gamma)), \quad u \sim U(\epsilon, 1 - \epsilon) $$

    | symbol | here | value |
    |---|---|---|
    | $\log\alpha$ | `log_alpha` | learned, (H,); Glorot's uniform at first, $\pm\sqrt{3/H}$ |
    | $\beta$ | temperature | 0.33 |
    | $\gamma, \zeta$ | ends that $s$ is stretched to | −0.1, 1.1 |
    | $\epsilon$ | keeps the noise finite | 1e-6 |

    Source: [@louizos2018]; constants of the released code of [@voita2019heads].
    """

    def __init__(self, num_heads: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        if num_heads < 1:
            raise UserError(f"num_heads must be at least 1. Got {num_heads}.")
        bound = math.sqrt(3 / num_heads)
        self.log_alpha = nn.Parameter(torch.empty(num_heads).uniform_(-bound, bound, generator=generator))

    def sample(self, generator: torch.Generator | None = None) -> Float[Tensor, " head"]:
        """Random gates in [0, 1], differentiable in `log_alpha`; draw them once per batch."""
        u = torch.rand(self.log_alpha.shape, generator=generator, device=self.log_alpha.device)
        u = (EPSILON + (1 - 2 * EPSILON) * u).to(self.log_alpha.dtype)
        s = torch.sigmoid((u.log() - (1 - u).log() + self.log_alpha) / BETA)
        return (s * (ZETA - GAMMA) + GAMMA).clamp(0, 1)

    def deterministic(self) -> Float[Tensor, " head"]:
        r"""Gates for evaluation: $\min(1, \max(0, 1.2\,\sigma(\log\alpha) - 0.1))$, without temperature."""
        return (torch.sigmoid(self.log_alpha) * (ZETA - GAMMA) + GAMMA).clamp(0, 1)

    def open_probability(self) -> Float[Tensor, " head"]:
        r"""$P(g \ne 0) = \sigma(\log\alpha - \beta \ln(-\gamma / \zeta))$, kept within [ε, 1 − ε]."""
        return torch.sigmoid(self.log_alpha - BETA * math.log(-GAMMA / ZETA)).clamp(EPSILON, 1 - EPSILON)

    def full_probability(self) -> Float[Tensor, " head"]:
        r"""$P(g = 1) = \sigma(\log\alpha - \beta \ln((1 - \gamma) / (\zeta - 1)))$."""
        return torch.sigmoid(self.log_alpha - BETA * math.log((1 - GAMMA) / (ZETA - 1)))

    def alive(self, rule: str = "code") -> Bool[Tensor, " head"]:
        r"""Which heads are kept.

        `"code"` (the released code): those whose evaluation gate is not 0, $\log\alpha > -\ln 11 \approx -2.398$. A
        head is removed only once its gate has decided. `"paper"`: those more often 1 than 0, $\log\alpha > 0$, which
        classifies an undecided gate by the sign of its initial value. The two agree once every gate is decided
        (`undecided`).

        Raises:
            UserError: The rule is unknown.
        """
        if rule not in ("paper", "code"):
            raise UserError(f'rule must be "paper" or "code". Got {rule}.')
        return self.log_alpha > 0 if rule == "paper" else self.deterministic() > 0

    def undecided(self) -> Bool[Tensor, " head"]:
        """Gates that evaluate to neither 0 nor 1."""
        return self.log_alpha.abs() < UNDECIDED
