"""AdamW, and its state under the names of the parameters."""

import torch
from torch import Tensor, nn

from ._config import TrainConfig


def make_optimizer(module: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """AdamW with decoupled decay, on every parameter or on matrices only (`decay_norms`)."""
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    scaled = [parameter for parameter in parameters if rate_scale(parameter) != 1.0]
    parameters = [parameter for parameter in parameters if rate_scale(parameter) == 1.0]
    plain = [] if config.decay_norms else [parameter for parameter in parameters if parameter.ndim < 2]
    decayed = [parameter for parameter in parameters if config.decay_norms or parameter.ndim >= 2]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    groups += [{"params": [one], "weight_decay": 0.0, "rate_scale": rate_scale(one)} for one in scaled]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.epsilon,
        fused=True,
    )


def rate_scale(parameter: nn.Parameter) -> float:
    """A parameter's own multiple of the learning rate, where it has one (`parameter.rate_scale`): gates learn faster
    than weights."""
    return float(getattr(parameter, "rate_scale", 1.0))


def optimizer_state(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's tensors as `parameter:field`."""
    return {
        f"{name}:{field}": value
        for name, parameter in module.named_parameters()
        for field, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(module: nn.Module, optimizer: torch.optim.Optimizer, state: dict[str, Tensor]) -> None:
    """Put back what `optimizer_state` returned."""
    parameters = dict(module.named_parameters())
    for key, value in state.items():
        name, field = key.rsplit(":", 1)
        parameter = parameters[name]
        # Fused AdamW counts steps in a tensor beside the parameter.
        optimizer.state[parameter][field] = value.to(parameter.device)
