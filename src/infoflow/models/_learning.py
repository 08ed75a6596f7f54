"""The trained parameters of a model."""

from torch import nn


def learning_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that an optimiser changes, by name; tied ones once."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
