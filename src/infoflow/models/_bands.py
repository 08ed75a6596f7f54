"""Local attention of Longformer, LED and LongT5, computed as one masked softmax through the attention function."""

from functools import cache, partial
from typing import Any

from torch import Tensor, nn

from infoflow._transformers import LEDEncoder, LongformerModel, PreTrainedModel
from infoflow.foundation import UserError

from ._first_pass import run_tiny, tiny_inputs
from ._modules import evaluating

FIRST_IS_GLOBAL = "first_token_is_global"
"""Entry of a configuration: the first token of every row is global by default."""
DILATION = "attention_dilation"
"""Entry of a configuration: a window holds only tokens at multiples of this distance, so it reaches that many times as
far; 1 by default."""
_TOLERANCE = 1e-4


def read_bands_densely(module: PreTrainedModel) -> None:
    """Compute banded attention (and LongT5's blocks) through the attention function from now on.

    Other models are unchanged.

    Memory is then layers x heads x T x T while attention is read, as in all other families.
    """
    found = [child for child in module.modules() if type(child) in _dense()]
    if not found:
        return
    inputs = tiny_inputs(module)
    with evaluating(module):
        before = run_tiny(module, inputs)
    compute_densely(module)
    with evaluating(module):
        after = run_tiny(module, inputs)
    # The family's own code supports neither of these two settings, so its results may differ.
    own = getattr(module.config, FIRST_IS_GLOBAL, False) or getattr(module.config, DILATION, 1) > 1
    same = (after - before).norm() <= _TOLERANCE * before.norm()
    if bool(before.isfinite().all()) and not same and not own:
        raise UserError(
            f"{type(module).__name__} uses banded attention, but does not compute the same with a single masked "
            "softmax, so part of its attention is unknown to infoflow. Analyse a model of another family."
        )


def compute_densely(module: nn.Module) -> None:
    """Compute every banded attention of the module as one masked softmax, without padding texts."""
    for child in module.modules():
        if type(child) in _dense():
            child.__class__ = _dense()[type(child)]
            child.dilation = int(getattr(getattr(module, "config", None), DILATION, 1))  # type: ignore
        if isinstance(child, LongformerModel | LEDEncoder):
            first = bool(getattr(child.config, FIRST_IS_GLOBAL, False))
            child._pad_to_window_size = partial(_as_it_is, first_is_global=first)  # type: ignore


def _as_it_is(
    attention_mask: Tensor, pad_token_id: int | None, first_is_global: bool, **inputs: Any
) -> tuple[Any, ...]:
    """Replaces the family's padding to whole windows: it only makes the first token global if configured."""
    if first_is_global and not bool((attention_mask > 1).any()):
        attention_mask = attention_mask + first_tokens(attention_mask)  # 2 is a global token
    rest = [inputs[name] for name in ("token_type_ids", "position_ids") if name in inputs]
    return (0, inputs["input_ids"], attention_mask, *rest, inputs["inputs_embeds"])


def first_tokens(attention_mask: Tensor) -> Tensor:
    """1 at the first real token of each row (B, T), for padding on either side: a family's mask of global tokens."""
    first = attention_mask > 0
    return (first & (first.cumsum(dim=1) == 1)).to(attention_mask.dtype)


@cache
def _dense() -> dict[type[nn.Module], type[nn.Module]]:
    """The class that replaces each class of banded attention."""
    from ._dense_bands import DENSE  # slow import

    return DENSE


def attends_densely(module: nn.Module) -> bool:
    """Whether this attention is computed as one masked softmax instead of bands or blocks."""
    return type(module) in _dense().values()
