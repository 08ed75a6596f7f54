"""Switch heads off inside a `with` block."""

# B sentence, T token, H head, d head width

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from infoflow.corpus import Corpus
from infoflow.flow import Reader
from infoflow.foundation import UserError, hash64_array
from infoflow.models import AttentionCall, HeadCall, Model, Site, tap

from ._head_sets import (
    AblationMode,
    DonatedHeads,
    HeadEdit,
    HeadMeans,
    Replacement,
    by_site,
    check_mode,
    head_means,
    head_set,
    real_tokens,
    rotated_rows,
    zeros,
)

Reference = Mapping[str, Any] | Sequence[Mapping[str, Any]] | Corpus
_DONORS = 64  # number of corpus sentences that donate outputs


@contextmanager
def ablate(
    model: Model,
    heads: Iterable[Sequence[str | int]],
    mode: str = "zero",
    *,
    reference: Reference | None = None,
    preserve_patterns: bool = False,
) -> Iterator[None]:
    r"""Replace the outputs of some heads inside a `with` block; afterwards the model is restored, even after an error.

    $$ \mathrm{out}_i = \sum_h \widetilde{\mathrm{ctx}}_{ih} W_O^h + b_O $$

    | `mode`       | $\widetilde{\mathrm{ctx}}_{ih}$ of an ablated head                                                |
    |--------------|---------------------------------------------------------------------------------------------------|
    | `"zero"`     | 0; the bias $b_O$ still acts                                                                      |
    | `"mean"`     | mean of $\mathrm{ctx}_h$ over the non-padding tokens of the reference                             |
    | `"resample"` | $\mathrm{ctx}_h$ at the same position of another reference sentence; past its end, unchanged    |

    The replacement applies to the input of the output projection, the only point where heads are separable. So it is
    exact in every family, treats query heads separately in grouped attention, and works with any attention kernel.

    Args:
        model: A loaded model; call `model.module(...)`, or anything that calls it (`translate`), inside the block.
        heads: (stack, kind, layer, head) of each head, counted from 0; if empty, the model is unchanged.
        mode: See the table.
        reference: For `"mean"` and `"resample"`: one or more batches (keyword arguments of the forward pass) or a
            corpus, which the unablated model reads. Without a reference, the batch of each forward pass is its own
            reference; then reference outputs of upper layers already depend on the ablations in lower layers.
        preserve_patterns: Keep all attention weights of the unablated model on the same input, so that later heads
            change only through their values. This costs a second forward pass, and uses infoflow's attention code.

    Raises:
        UserError: A head does not exist, the mode is unknown, or a required reference is missing.

    Source: zero [@michel2019]; preserved patterns [@olsson2022].

    >>> ids = torch.tensor([[5, 6, 7]])
    >>> with torch.no_grad(), ablate(model, [("encoder", "self", 0, 1)]):
    ...     ablated = model.module(ids).logits
    >>> bool((ablated == model.module(ids).logits).all())
    False
    """
    chosen, checked = head_set(model, heads), check_mode(mode)
    with ExitStack() as stack:
        inputs = stack.enter_context(InputWatch(model)) if checked != "zero" and reference is None else None
        replacement = _replacement(model, checked, reference, inputs)
        patterns = stack.enter_context(CleanPatterns(model)) if preserve_patterns and chosen else None
        edit = HeadEdit([chosen], replacement)

        def on_heads(call: HeadCall) -> Tensor | None:
            return None if patterns is not None and patterns.recording else edit(call)

        stack.enter_context(tap(model, on_heads=on_heads, on_attention=patterns))
        yield


def _replacement(
    model: Model, mode: AblationMode, reference: Reference | None, inputs: "InputWatch | None"
) -> Replacement:
    if mode == "zero":
        return zeros
    if inputs is not None:
        return partial(_own_mean if mode == "mean" else _own_donors, inputs)
    assert reference is not None
    batches = _batches(model, reference, mode)
    if not batches:
        raise UserError("reference must hold at least one batch. Got none.")
    return head_means(model, batches) if mode == "mean" else _ReferenceDonors(model, batches[0])


def _own_mean(inputs: "InputWatch", call: HeadCall) -> Tensor:
    means = HeadMeans()
    means.add(call.site, call.heads, inputs.real(call))
    return means(call)


def _own_donors(inputs: "InputWatch", call: HeadCall) -> Tensor:
    real = inputs.real(call)
    donors = rotated_rows(real.sum(dim=1))
    return DonatedHeads({call.site: call.heads[donors]}, {call.stack: real[donors]})(call)


class _ReferenceDonors:
    """Replaces each row's outputs with those of a reference sentence, chosen by a hash of the row number."""

    def __init__(self, model: Model, reference: Mapping[str, Any]) -> None:
        with torch.no_grad(), tap(model, heads=True) as seen:
            model.module(**{name: value for name, value in reference.items() if name != "labels"})
        self._outputs = by_site(seen.heads)
        self._real = {one.name: real_tokens(model, reference, one.name) for one in model.anatomy.stacks}

    def __call__(self, call: HeadCall) -> Tensor:
        given, real = self._outputs[call.site], self._real[call.stack]
        rows = hash64_array(("ablation-donors",), torch.arange(call.heads.shape[0]).numpy()) % len(given)
        donors = torch.from_numpy(rows.astype("int64"))
        return DonatedHeads({call.site: given[donors]}, {call.stack: real[donors]})(call)


def _batches(model: Model, reference: Reference, mode: AblationMode) -> list[Mapping[str, Any]]:
    if isinstance(reference, Mapping):
        return [reference]
    if not isinstance(reference, Corpus):
        return list(reference)
    two = len(model.anatomy.stacks) > 1
    if two and "translation" not in reference.columns:
        raise UserError(f"{model.name} reads translations too, and {reference.name} has none. Give a parallel corpus.")
    reader = Reader(model, reference, max_length=512, seed=0, decoder=two)
    batches = reader.batches(4096)
    if mode == "resample":
        batches = [batches[-1][-_DONORS:]]  # the longest sentences, so that every sentence finds a donor for its end
    found: list[Mapping[str, Any]] = []
    for rows in batches:
        streams = reader.padded(rows).to(model.device).streams
        source = streams[reader.source_stack]
        batch: dict[str, Any] = {"input_ids": source.input_ids, "attention_mask": source.real.long()}
        if two:
            batch |= {"decoder_input_ids": streams["decoder"].input_ids}
            batch |= {"decoder_attention_mask": streams["decoder"].real.long()}
        found.append(batch)
    return found


class CleanPatterns:
    """Runs every batch once without ablation, and fixes the weights of the ablated pass to those of this first pass."""

    def __init__(self, model: Model) -> None:
        self._model, self.recording = model, False
        self._weights: dict[Site, Tensor] = {}

    def __enter__(self) -> "CleanPatterns":
        # Registered before the tap's own hook, so that the tap counts the outer pass's layers from 0 again.
        self._handle = self._model.module.register_forward_pre_hook(self._before, with_kwargs=True)
        return self

    def __exit__(self, *error: object) -> None:
        self._handle.remove()

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.recording:
            return
        if has_cache(bound_inputs(module, args, kwargs)):
            raise UserError("preserve_patterns needs whole sentences: it cannot follow generation with a cache.")
        self.recording = True
        try:
            self._weights.clear()
            module(*args, **kwargs)
        finally:
            self.recording = False

    def __call__(self, call: AttentionCall) -> AttentionCall | None:
        if self.recording:
            self._weights[call.site] = call.weights
            return None
        if call.site not in self._weights:
            raise UserError("preserve_patterns needs a forward pass of the whole model: call model.module(...).")
        return call.edited(weights=self._weights[call.site])


class InputWatch:
    """Records the arguments of the running forward pass."""

    def __init__(self, model: Model) -> None:
        self._model, self._inputs, self._handles = model, None, []

    def __enter__(self) -> "InputWatch":
        for module in dict.fromkeys((self._model.module, self._model.module.base_model)):
            self._handles.append(module.register_forward_pre_hook(self._before, with_kwargs=True))
        self._handles.append(self._model.module.register_forward_hook(self._after, always_call=True))
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._inputs is None or module is self._model.module:
            self._inputs = bound_inputs(module, args, kwargs)

    def _after(self, module: nn.Module, args: Any, output: Any) -> None:
        self._inputs = None

    def real(self, call: HeadCall) -> Tensor:
        """Mask of the current batch's non-padding tokens, for the call's stack."""
        inputs = self._inputs
        if inputs is None or has_cache(inputs):
            raise UserError(
                "A batch can be its own reference only in a forward pass of the whole model without a key-value cache. "
                "While generating, give ablate(..., reference=...): a batch or a corpus."
            )
        real = real_tokens(self._model, inputs, call.stack)
        assert real.shape == call.heads.shape[:2], (real.shape, call.heads.shape)
        return real.to(call.heads.device)


def bound_inputs(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """All arguments of a forward pass by name, without those that are None."""
    bound = inspect.signature(module.forward).bind_partial(*args, **kwargs).arguments
    named = {name: value for name, value in bound.items() if name not in ("kwargs", "args")}
    return {name: value for name, value in (named | dict(bound.get("kwargs", {}))).items() if value is not None}


def has_cache(inputs: Mapping[str, Any]) -> bool:
    return inputs.get("past_key_values") is not None
