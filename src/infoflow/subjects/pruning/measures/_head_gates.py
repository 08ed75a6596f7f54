"""Learned gates on the heads of a model. Many gates become exactly 0 or 1; they are submodules during training."""

# H head

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from infoflow.foundation import UserError
from infoflow.heads import Head, all_heads
from infoflow.models import HeadCall, Model, tap

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
    | $\gamma, \zeta$ | ends to which $s$ is stretched | −0.1, 1.1 |
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

    def alive(self, rule: str = "code") -> Bool[Tensor, " head"]:
        r"""Mask of the heads that are kept.

        `"code"` (the released code) keeps heads whose evaluation gate is not 0, $\log\alpha > -\ln 11 \approx -2.398$,
        so a head is removed only once its gate is closed. `"paper"` keeps heads whose gate is 1 more often than 0,
        $\log\alpha > 0$, so an undecided gate is classified by the sign of its initial value. The rules agree once
        every gate is decided (see `undecided`).

        Raises:
            UserError: The rule is unknown.
        """
        if rule not in ("paper", "code"):
            raise UserError(f'rule must be "paper" or "code". Got {rule}.')
        return self.log_alpha > 0 if rule == "paper" else self.deterministic() > 0

    def undecided(self) -> Bool[Tensor, " head"]:
        """Gates that evaluate to neither 0 nor 1."""
        return self.log_alpha.abs() < UNDECIDED


# Learned gates on the heads of a model: submodules during training, so that checkpoints include them.


Site = tuple[str, str, int]
ATTRIBUTE = "infoflow_head_gates"
"""Name of the gates in the module they are attached to."""
FIRST_TEMPERATURE, LAST_TEMPERATURE, COOLING_STEPS = 1000.0, 1e-8, 25_000


class AbstractHeadGates(nn.Module):
    """One gate per head of some kinds of attention; heads of other kinds have none and are kept."""

    def __init__(self, model: Model, kinds: Sequence[str] | None) -> None:
        super().__init__()
        self.heads = gated_heads(model, kinds)
        self._current: dict[Site, Tensor] = {}

    @property
    def sites(self) -> dict[Site, list[int]]:
        """Indices in `heads` of each attention's heads."""
        sites: dict[Site, list[int]] = {}
        for index, head in enumerate(self.heads):
            sites.setdefault(head[:3], []).append(index)
        return sites

    @abstractmethod
    def training_gates(self) -> Tensor:
        """Gates of one forward pass in training, one per head; random, from torch's global state."""

    @abstractmethod
    def evaluation_gates(self) -> Tensor:
        """Gates in evaluation."""

    @abstractmethod
    def penalty(self) -> Tensor:
        """The term added to the training loss, before its weight."""

    def draw(self) -> None:
        """Draw new gates for the following forward passes: the same for a whole batch and all its layers."""
        self._current = self._by_site(self.training_gates())

    def forward(self, call: HeadCall) -> Tensor | None:
        """The heads of one attention, gated; for `tap(on_heads=...)`."""
        gates = self._current if self.training else self._by_site(self.evaluation_gates().detach())
        gate = gates.get((call.stack, call.kind, call.layer))
        return None if gate is None else call.heads * gate.to(call.heads)[:, None]

    def _by_site(self, gates: Tensor) -> dict[Site, Tensor]:
        return {site: gates[places] for site, places in self.sites.items()}


class HardConcreteGates(AbstractHeadGates):
    """Hard Concrete gates, with a penalty on how often they are open.

    | `convention` | penalty | weight for the same pressure on each head |
    |---|---|---|
    | `"module_mean"` (released code) | mean over attentions of $\\sum_h P(g_h \\ne 0)$ | coefficient |
    | `"sum"` (paper) | $\\sum_h P(g_h \\ne 0)$ over all gated heads | coefficient / number of attentions |

    Source: [@voita2019heads].
    """

    def __init__(
        self,
        model: Model,
        kinds: Sequence[str] | None = None,
        *,
        convention: str = "module_mean",
        rate_scale: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__(model, kinds)
        if convention not in ("sum", "module_mean"):
            raise UserError(f'convention must be "sum" or "module_mean". Got {convention}.')
        self.convention = convention
        generator = torch.Generator().manual_seed(seed)
        self.gates = nn.ModuleDict({name: HardConcrete(num, generator) for name, num in self._names().items()})
        for gate in self.gates.values():
            gate.log_alpha.rate_scale = rate_scale  # type: ignore[attr-defined]

    def _names(self) -> dict[str, int]:
        return {"-".join(map(str, site)): len(places) for site, places in self.sites.items()}

    def _modules_in_order(self) -> list[HardConcrete]:
        return [self.gates[name] for name in self._names()]  # type: ignore[misc]

    @property
    def log_alpha(self) -> Tensor:
        """One log α per head, in the order of `heads`."""
        return torch.cat([gate.log_alpha for gate in self._modules_in_order()])

    def training_gates(self) -> Tensor:
        return torch.cat([gate.sample() for gate in self._modules_in_order()])

    def evaluation_gates(self) -> Tensor:
        return torch.cat([gate.deterministic() for gate in self._modules_in_order()])

    def alive(self, rule: str = "code") -> Tensor:
        """Mask of the kept heads, in the order of `heads`; see `HardConcrete.alive`."""
        return torch.cat([gate.alive(rule) for gate in self._modules_in_order()])

    def undecided(self) -> Tensor:
        """Heads whose gate evaluates to neither 0 nor 1."""
        return torch.cat([gate.undecided() for gate in self._modules_in_order()])

    def penalty(self) -> Tensor:
        expected = torch.stack([gate.open_probability().sum() for gate in self._modules_in_order()])
        return expected.sum() if self.convention == "sum" else expected.mean()


class SubsetHeadGates(AbstractHeadGates):
    """Gates that let exactly k heads pass, with a temperature that falls from step to step, and without a penalty.

    Args:
        model: A loaded model.
        k: Heads to keep.
        kinds: Kinds of attention to choose among.
        steps: Steps over which the temperature falls.
        straight_through: The heads with the k largest logits pass; gradients treat every gate as if it were its logit.
        rate_scale: Multiple of the learning rate for the logits.

    Source: [@li2021subset].
    """

    def __init__(
        self,
        model: Model,
        k: int,
        kinds: Sequence[str] | None = None,
        *,
        steps: int = 25_000,
        straight_through: bool = False,
        rate_scale: float = 1.0,
        seed: int = 0,
    ) -> None:
        super().__init__(model, kinds)
        num = len(self.heads)
        if not 0 <= k <= num:
            raise UserError(f"k must lie between 0 and the number of gated heads, {num}. Got {k}.")
        bound = (3 / num) ** 0.5  # Xavier's uniform, one output per head
        generator = torch.Generator().manual_seed(seed)
        self.logits = nn.Parameter(torch.empty(num).uniform_(-bound, bound, generator=generator))
        self.logits.rate_scale = rate_scale  # type: ignore[attr-defined]
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))
        self.k, self.steps, self.straight_through = k, steps, straight_through

    def training_gates(self) -> Tensor:
        assert isinstance(self.step, Tensor)
        temperature = cooling(int(self.step), self.steps)
        self.step += 1
        if self.straight_through:
            return straight_through_gates(self.logits, self.k)
        generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        return subset_gates(self.logits.cpu(), self.k, temperature, generator).to(self.logits.device)

    def evaluation_gates(self) -> Tensor:
        return subset_mask(self.logits, self.k)

    def alive(self, rule: str = "code") -> Tensor:
        return self.evaluation_gates() > 0

    def undecided(self) -> Tensor:
        return torch.zeros(len(self.heads), dtype=torch.bool)

    def penalty(self) -> Tensor:
        return self.logits.new_zeros(())


def gated_heads(model: Model, kinds: Sequence[str] | None) -> list[Head]:
    """Heads of some kinds of attention ("encoder-self", "decoder-self", "decoder-cross"); default: all."""
    heads = all_heads(model.anatomy)
    there = list(dict.fromkeys(f"{head[0]}-{head[1]}" for head in heads))
    if unknown := [kind for kind in kinds or () if kind not in there]:
        raise UserError(f"{model.name} has attention of the kinds {', '.join(there)}. Got {unknown[0]}.")
    return [head for head in heads if kinds is None or f"{head[0]}-{head[1]}" in kinds]


@contextmanager
def attached(model: Model, gates: AbstractHeadGates) -> Iterator[None]:
    """Apply gates inside a `with` block: they become a submodule of the model's module, used in every forward pass."""
    module = model.module
    assert not hasattr(module, ATTRIBUTE), "gates are attached already"
    module.add_module(ATTRIBUTE, gates.to(module.device))
    try:
        with tap(model, on_heads=gates):
            yield
    finally:
        delattr(module, ATTRIBUTE)


def subset_gates(
    logits: Float[Tensor, " head"], k: int, temperature: float, generator: torch.Generator | None = None
) -> Float[Tensor, " head"]:
    r"""k draws without replacement, relaxed: gates in [0, 1] that sum to k, differentiable in the logits.

    $$ r = w + \mathrm{Gumbel}, \qquad p_1 = \mathrm{softmax}(r / t), \qquad
       r \leftarrow r + \ln\max(1 - p_{j-1}, \text{tiny}), \quad p_j = \mathrm{softmax}(r / t), \qquad
       g = \sum_{j=1}^{k} p_j $$

    Computed in float64. Without a generator there is no noise: the released code draws noise in evaluation too, so that
    a model is scored with different heads each time.

    Args:
        logits: $w$, one per head.
        k: Number of heads to keep, from 0 to H.
        temperature: $t$; as it falls to 0 the gates become those of `subset_mask`.
        generator: Source of the Gumbel noise.

    Raises:
        UserError: k is negative or larger than the number of heads, or the temperature is not positive.

    Source: [@li2021subset].

    >>> subset_gates(torch.tensor([0.0, 2.0, 1.0]), k=2, temperature=0.01).round().tolist()
    [0.0, 1.0, 1.0]
    """
    _check(logits, k)
    if not temperature > 0:
        raise UserError(f"temperature must be positive. Got {temperature}.")
    r = logits.double()
    if generator is not None:
        uniform = torch.rand(r.shape, generator=generator, dtype=torch.float64, device=r.device)
        r = r - (-uniform.clamp(min=torch.finfo(torch.float64).tiny).log()).log()
    gates = torch.zeros_like(r)
    tiny = torch.finfo(torch.float64).tiny
    p = torch.zeros_like(r)
    for _ in range(k):
        r = r + (1 - p).clamp(min=tiny).log()
        p = torch.softmax(r / temperature, dim=0)
        gates = gates + p
    return gates.to(logits.dtype)


def subset_mask(logits: Float[Tensor, " head"], k: int) -> Float[Tensor, " head"]:
    """1 for the k largest logits, otherwise 0; ties are broken by index, so there are always k ones."""
    _check(logits, k)
    mask = torch.zeros_like(logits)
    mask[torch.argsort(logits.detach(), descending=True, stable=True)[:k]] = 1
    return mask


def straight_through_gates(logits: Float[Tensor, " head"], k: int) -> Float[Tensor, " head"]:
    """The values of `subset_mask`; gradients pass to the logits unchanged, as if each gate were its logit."""
    return subset_mask(logits, k) + (logits - logits.detach())


def cooling(step: int, steps: int = COOLING_STEPS) -> float:
    """Temperature of a training step: geometric from 1000 to 1e-8 over `steps`, then constant."""
    share = min(1.0, max(0, step) / max(1, steps))
    return FIRST_TEMPERATURE * (LAST_TEMPERATURE / FIRST_TEMPERATURE) ** share


def _check(logits: Tensor, k: int) -> None:
    if not 0 <= k <= len(logits):
        raise UserError(f"k must lie between 0 and the number of heads, {len(logits)}. Got {k}.")
