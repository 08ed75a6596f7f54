"""How deep in a model each of its parameters lies."""

from transformers import PreTrainedModel

from infoflow.models import Anatomy


def parameter_depths(module: PreTrainedModel, anatomy: Anatomy, fresh: frozenset[str]) -> tuple[dict[str, int], int]:
    """The depth of each parameter, and that of the head, which is the largest.

    | depth | parameters                                                                                             |
    |-------|--------------------------------------------------------------------------------------------------------|
    | 0     | what comes before the first block: embeddings, their norm                                              |
    | b + 1 | block b, counted over the encoder and then the decoder; a norm behind an encoder's last block is of it |
    | B + 1 | what comes after the last of B blocks (a final norm, a pooler, a head), and all that is `fresh`        |

    Blocks that share their weights (ALBERT) are one.
    """
    blocks = list(dict.fromkeys(layer.block for stack in anatomy.stacks for layer in stack.layers))
    top, here = len(blocks) + 1, 0
    depths = {}
    for name, _ in module.named_parameters():
        found = next((index for index, block in enumerate(blocks) if name.startswith(f"{block}.")), None)
        here = here if found is None else found + 1
        behind = found is None and here == len(blocks)
        depths[name] = top if behind or name in fresh else here
    return depths, top
