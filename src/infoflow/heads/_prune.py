"""Physical removal of heads: a smaller model that equals the ablated one."""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from infoflow.foundation import UserError
from infoflow.models import Model, is_pruned_folder, load_model, remove_heads, tiny_inputs

from ._ablate import ablate
from ._head_sets import head_set


def prune(model: Model, heads: Iterable[Sequence[str | int]], *, incomplete: str = "refuse") -> Model:
    """A copy of a model without some of its heads; `model` is unchanged.

    Rows of the query, key and value projections and columns of the output projection are removed, so that the logits
    equal those of `ablate(model, heads)`, up to rounding; the output projection's bias stays, even if no head does.
    This is checked on a few tokens before the copy is returned.

    | family | removal |
    |---|---|
    | BERT, RoBERTa, ELECTRA, DistilBERT, ModernBERT, GPT-NeoX, BART, mBART, Marian, M2M100, T5 | any heads |
    | GPT-2, OPT | any heads, but one of each layer stays |
    | LLaMA, Qwen3, Mistral, Gemma (grouped heads) | all heads of a group together |
    | ALBERT (one set of weights for all layers) | the same heads in every layer |
    | Phi-3, which reads widths off its configuration | refused |

    Args:
        model: A loaded model.
        heads: (stack, kind, layer, head) of each head to remove, as in `ablate`.
        incomplete: If only some heads of a group with a shared key and value are listed: `"refuse"`, or `"zero"` (keep
            them, with zeros in their part of the output projection).

    Raises:
        UserError: A head does not exist or cannot be removed; the message says why.
    """
    if incomplete not in ("refuse", "zero"):
        raise UserError(f'incomplete must be "refuse" or "zero". Got {incomplete}.')
    chosen = head_set(model, heads)
    module = copy.deepcopy(model.module)
    whole = chosen if incomplete == "refuse" else _complete_groups(model, chosen)
    removed: dict[tuple[str, str, int], set[int]] = {}
    for stack, kind, layer, head in whole:
        removed.setdefault((stack, kind, layer), set()).add(head)
    silence(model, module, chosen - whole)
    remove_heads(module, model.anatomy, removed)
    return _checked(model, module, chosen)


def load_pruned(folder: str | Path, device: str | torch.device = "auto") -> Model:
    """A model from `save_pruned`, with the same logits, its tokenizer and its anatomy.

    `load_model`, and so every command, also reads such a folder.

    Raises:
        UserError: The folder holds no pruned model, or one that this version of transformers builds otherwise.
    """
    if not is_pruned_folder(Path(folder)):
        raise UserError(f"{folder} has no pruned model (pruned.json). Use load_model for other folders.")
    return load_model(Path(folder), device=device)


def _complete_groups(model: Model, chosen: frozenset) -> frozenset:
    """The heads whose whole group is removed."""
    complete = set()
    for one in model.anatomy.attentions():
        for first in range(0, one.num_heads, one.group_size):
            group = {(one.stack, one.kind, one.layer, head) for head in range(first, first + one.group_size)}
            if group <= chosen:
                complete |= group
    return frozenset(complete)


def silence(model: Model, module: torch.nn.Module, heads: Iterable[tuple[str, str, int, int]]) -> None:
    """Zeros these heads' part of the output projections of `module`, a copy of the model's."""
    outputs = {(a.stack, a.kind, a.layer): a.output for a in model.anatomy.attentions()}
    with torch.no_grad():
        for *site, head in heads:
            for piece in outputs[tuple(site)].head(head):
                weight = module.get_parameter(piece.parameter)
                weight[piece.mask(weight).to(weight.device)] = 0.0


def _checked(model: Model, module: torch.nn.Module, chosen: frozenset) -> Model:
    """The pruned model, after a check that it equals the ablated one."""
    inputs = tiny_inputs(model.module)
    try:
        with torch.no_grad():
            found = _first(module(**inputs))
    except (RuntimeError, ValueError, IndexError, AttributeError, ZeroDivisionError) as error:
        raise UserError(
            f"{type(model.module).__name__} cannot run with these heads removed ({str(error).splitlines()[0]}). Ablate "
            "them instead, or leave at least one head in every layer."
        ) from error
    with torch.no_grad(), ablate(model, sorted(chosen)):
        expected = _first(model.module(**inputs))
    tolerance = 1e-3 if expected.dtype in (torch.float32, torch.float64) else 5e-2
    if found.shape != expected.shape or not (found - expected).norm() <= tolerance * expected.norm():
        raise UserError(
            f"{type(model.module).__name__} without these heads does not compute the same as with them ablated: it "
            "uses the number of its heads elsewhere. Ablate them instead of removing them."
        )
    pruned = load_model(module, tokenizer=model.tokenizer)
    return replace(pruned, name=f"{model.name} (pruned)", target_tokenizer=model.target_tokenizer)


def _first(output: dict) -> torch.Tensor:
    return output["logits"] if "logits" in output else output[0]
