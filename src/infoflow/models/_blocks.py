"""The blocks of a model whose heads cannot be read, found by the states that they pass on."""

# B sentence, T token, D width

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from infoflow._transformers import PreTrainedModel

from ._anatomy import Layer, Stack
from ._first_pass import is_sequence_to_sequence, run_tiny, tiny_inputs
from ._modules import evaluating


def stacks_of_states(module: PreTrainedModel) -> tuple[Stack, ...] | None:
    """Stacks without attention: lists of blocks, each of which reads the output of the previous one.

    None if there is no such list, or one stack of an encoder–decoder model has none.
    """
    parts = {"decoder": module}
    if is_sequence_to_sequence(module):
        parts = {"encoder": module.get_encoder(), "decoder": module}
    runs, causal = _run(module)
    stacks, taken = [], ""
    for name, part in parts.items():
        inside = {child for child in part.modules() if isinstance(child, nn.ModuleList)}
        chains = (path for path in _chains(module, runs) if module.get_submodule(path) in inside)
        found = next((path for path in chains if not (taken and path.startswith(taken))), None)
        if found is None:
            return None
        taken = found
        names = [f"{found}.{index}" for index, _ in module.get_submodule(found).named_children()]
        layers = tuple(
            Layer(index=index, block=block, attentions={}, other_paths=True) for index, block in enumerate(names)
        )
        own = name if len(parts) > 1 else ("decoder" if causal else "encoder")
        width = runs[module.get_submodule(names[0])][0][1].shape[-1]
        stacks.append(Stack(name=own, causal=own == "decoder", width=width, layers=layers))
    return tuple(stacks)


Runs = dict[nn.Module, list[tuple[Tensor, Tensor]]]
"""What each block read and returned, at each of its runs."""


def _run(module: PreTrainedModel) -> tuple[Runs, bool]:
    """The runs of one tiny pass, and whether a change of the last token leaves the output for all others unchanged."""
    runs: Runs = {}

    def after(block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        read = args[0] if args else kwargs.get("hidden_states")
        returned = output if isinstance(output, Tensor) else output[0] if isinstance(output, tuple) and output else None
        if isinstance(read, Tensor) and isinstance(returned, Tensor) and read.dim() == returned.dim() in (3, 4):
            runs.setdefault(block, []).append((read, returned))

    inputs = tiny_inputs(module)
    changed = {**inputs, "input_ids": inputs["input_ids"].clone()}
    changed["input_ids"][:, -1] = inputs["input_ids"][:, 0]
    with ExitStack() as stack:
        stack.enter_context(evaluating(module))
        other = run_tiny(module, changed)
        for parent in module.modules():
            for child in parent.children() if isinstance(parent, nn.ModuleList) else ():
                handle = child.register_forward_hook(after, with_kwargs=True)
                stack.callback(handle.remove)
        output = run_tiny(module, inputs)
    causal = output.dim() == 3 and torch.allclose(output[:, :-1], other[:, :-1], rtol=1e-4, atol=1e-5)
    return runs, causal


def _chains(module: nn.Module, runs: Runs) -> Iterator[str]:
    """Names of lists whose blocks run once each, in order: outer lists first, single blocks last."""
    lists = [
        (len(child) == 1, name.count("."), -len(child), name)
        for name, child in module.named_modules()
        if isinstance(child, nn.ModuleList) and len(child)
    ]
    for *_, name in sorted(lists):
        ran = [runs.get(block, []) for block in module.get_submodule(name).children()]
        if all(len(one) == 1 for one in ran) and all(
            first[0][1].shape == second[0][0].shape and torch.equal(first[0][1], second[0][0])
            for first, second in pairwise(ran)
        ):
            yield name
