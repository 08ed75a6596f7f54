"""AdamW, and its state under the names of the parameters."""

import torch
from torch import Tensor, nn

from ._config import TrainConfig


def make_optimizer(module: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW with decoupled decay, on every parameter or on matrices only (`decay_norms`).

    A parameter with its own rate (see `rate_scale`) is not decayed, unless it sets `decays_too`.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {(1.0, config.weight_decay): [], (1.0, 0.0): []}
    for parameter in module.parameters():
        if parameter.requires_grad:
            key = rate_scale(parameter), _weight_decay(parameter, config)
            groups.setdefault(key, []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": parameters, "weight_decay": decay, **({} if scale == 1.0 else {"rate_scale": scale})}
            for (scale, decay), parameters in groups.items()
            if parameters
        ],
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.epsilon,
        fused=True,
    )


def rate_scale(parameter: nn.Parameter) -> float:
    """A parameter's own factor on the learning rate (`parameter.rate_scale`), default 1.

    Gates learn faster than weights, lower layers slower than upper ones.
    """
    return float(getattr(parameter, "rate_scale", 1.0))


def _weight_decay(parameter: nn.Parameter, config: TrainConfig) -> float:
    decayed = rate_scale(parameter) == 1.0 or getattr(parameter, "decays_too", False)
    return config.weight_decay if decayed and (config.decay_norms or parameter.ndim >= 2) else 0.0


def optimizer_state(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's tensors as `parameter:field`."""
    return {
        f"{name}:{field}": value
        for name, parameter in module.named_parameters()
        for field, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(module: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Tensor]) -> None:
    """Restore the state from `optimizer_state`."""
    parameters = dict(module.named_parameters())
    for key, value in state.items():
        name, field = key.rsplit(":", 1)
        parameter = parameters[name]
        # Fused AdamW counts steps in a tensor beside the parameter.
        optimizer.state[parameter][field] = value.to(parameter.device)
