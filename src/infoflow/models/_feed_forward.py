"""The output modules of each block's feed-forward part."""

from infoflow.foundation import UserError

from ._model import Model


def feed_forward_outputs(model: Model, stack: str) -> list[str]:
    """The module of each block that outputs its feed-forward part, before the residual connection.

    If layers share their modules (ALBERT), every block has the same one.

    Raises:
        UserError: A block has no such module, or several (a mixture of experts).
    """
    by_block: dict[str, set[str]] = {}
    layers = model.anatomy.stack(stack).layers
    for group in model.anatomy.parameter_groups:
        if group.component == "mlp_out" and group.stack == stack and group.layer is not None:
            name = group.slice.parameter.rpartition(".")[0]
            by_block.setdefault(layers[group.layer].block, set()).add(name)
    found = [sorted(by_block.get(layer.block, ())) for layer in layers]
    for layer, names in zip(layers, found, strict=True):
        if len(names) != 1:
            several = "no feed-forward output" if not names else f"{len(names)} of them, as in a mixture of experts"
            raise UserError(
                f"Each block of {model.name} must have one module that returns its feed-forward output. Block "
                f"{layer.index} has {several}."
            )
    return [names[0] for names in found]
