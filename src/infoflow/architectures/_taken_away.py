"""Components that a study may remove from its models before training."""

from torch import nn
from transformers import PreTrainedModel


def fix_norms(model: PreTrainedModel) -> None:
    """Fix every norm's gain and bias at 1 and 0, so that it only standardises: they get no gradient."""
    for module in model.modules():
        if type(module).__name__.endswith("Norm"):
            module.requires_grad_(False)


def untie(model: PreTrainedModel) -> None:
    """Untie the output matrix of every writing stack from its token embeddings; it starts with the same values."""
    for stack in [module for module in model.modules() if isinstance(module, PreTrainedModel)]:
        output = stack.get_output_embeddings()
        if output is None or output.weight is not stack.get_input_embeddings().weight:
            continue
        for name, parameter in list(output.named_parameters()):  # BERT's bias is tied together with its matrix
            setattr(output, name, nn.Parameter(parameter.detach().clone()))
        stack.config.tie_word_embeddings = False
