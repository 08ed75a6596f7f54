"""The depth of each parameter in a model."""

import re

from transformers import PreTrainedModel

from infoflow.models import Anatomy

_IN_FRONT = re.compile(r"embed|(^|_)emb($|_)|position|token_type|relative_attention_bias|^(shared|wte|wpe|project_in)$")
"""Parts of names of parameters before the first block: embeddings, their norms and projections, distance biases."""


def parameter_depths(module: PreTrainedModel, anatomy: Anatomy, fresh: frozenset[str]) -> tuple[dict[str, int], int]:
    """The depth of each parameter, and the depth of the head, which is the largest.

    | depth | parameters                                                                                            |
    |-------|-------------------------------------------------------------------------------------------------------|
    | 0     | embeddings of tokens, positions and distances wherever they are read, their norms and projections     |
    | b + 1 | block b, counted over the encoder and then the decoder; a norm behind an encoder's last block is of it |
    | B + 1 | what comes after the last of B blocks (a final norm, a pooler, a head), and all that is `fresh`       |

    Blocks that share their weights (ALBERT) count as one. Parameters outside blocks are classified by name.
    """
    blocks = list(dict.fromkeys(layer.block for stack in anatomy.stacks for layer in stack.layers))
    inside = {block: depth for depth, block in enumerate(blocks, start=1)}
    # For all stacks but the last: the location of their modules, and the depth of their last block.
    ends = {
        f"{stack.layers[0].block.rpartition('.')[0].rpartition('.')[0]}.": inside[stack.layers[-1].block]
        for stack in anatomy.stacks[:-1]
    }
    top = len(blocks) + 1

    def depth(name: str) -> int:
        if name in fresh:
            return top
        if block := next((block for block in blocks if name.startswith(f"{block}.")), None):
            return inside[block]
        if _is_in_front(module, name):
            return 0
        return next((end for start, end in ends.items() if name.startswith(start)), top)

    return {name: depth(name) for name, _ in module.named_parameters()}, top


def _is_in_front(module: PreTrainedModel, name: str) -> bool:
    """Whether a parameter outside blocks belongs to embeddings.

    DeBERTa's encoder normalises its distance embeddings.
    """
    owner, _, _ = name.rpartition(".")
    parent, _, last = owner.rpartition(".")
    if last == "LayerNorm" and hasattr(module.get_submodule(parent), "rel_embeddings"):
        return True
    return any(_IN_FRONT.search(part) for part in name.split("."))
