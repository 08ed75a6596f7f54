"""Forward passes of pairs: recorded, with parts swapped (many variants in one pass), and with gradients."""

# V variant, B pair, T token

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.models import BlockOutputs, FastLinear, Model, first_block, readout, recorded_blocks, skipped_blocks, tap

from ._encoded import PairBatch
from ._parts import ATTENTION, HEAD, INPUTS, RESIDUAL, Part, Slot, seen_parts

Values = Mapping[Slot, Tensor]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Recorded:
    """The clean or the corrupted inputs of a batch, with the values of their slots."""

    ids: Int[Tensor, "pair token"]
    metric: Float[Tensor, " pair"]
    logits: Float[Tensor, "pair vocabulary"]
    values: dict[Slot, Tensor]
    blocks: BlockOutputs


@dataclass(frozen=True, slots=True, eq=False)
class Donated:
    """The values of rows chosen from both sides."""

    sides: tuple[Recorded, Recorded]
    rows: Int[Tensor, " pair"]
    """Rows of the first side, then of the second one."""

    def __getitem__(self, slot: Slot) -> Tensor:
        pairs = len(self.rows)
        whole = torch.cat([side.values[slot].unflatten(0, (pairs, -1)) for side in self.sides])
        return whole[self.rows].flatten(0, 1)


@dataclass(kw_only=True, slots=True, eq=False)
class PairRuns:
    """Runs a model on pairs."""

    model: Model
    budget: int  # tokens in one pass
    _read: Callable[[Tensor], Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self._read = readout(self.model)

    @property
    def share(self) -> int:
        """Maximum number of tokens in a batch that leaves room for several variants of it in one pass."""
        return max(1, self.budget // 8)

    def sides(self, batch: PairBatch, parts: Sequence[Part]) -> tuple[Recorded, Recorded]:
        """The clean and the corrupted inputs, with the slots of these parts and the residual states."""
        names = {one.slot.name for one in parts} | {RESIDUAL}
        return self._recorded(batch, batch.clean, names), self._recorded(batch, batch.corrupted, names)

    def _recorded(self, batch: PairBatch, ids: Tensor, names: set[str]) -> Recorded:
        values: dict[Slot, Tensor] = {}
        with torch.no_grad(), FastLinear():
            keep = seen_parts(self.model, names, lambda slot, value: values.update({slot: value}))
            with keep, recorded_blocks(self.model) as blocks:
                states = self._states(batch, ids)
            logits = self._read(states)
            metric = batch.metric(logits)
        return Recorded(ids=ids, metric=metric, logits=logits, values=values, blocks=blocks)

    def swapped(
        self, batch: PairBatch, base: Recorded, variants: Sequence[Sequence[Part]], donor: "Donated | Values"
    ) -> Float[Tensor, "variant pair"]:
        """The metric of the base's inputs if each variant's parts have the donor's values."""
        found = base.metric.double().cpu().repeat(len(variants), 1)
        together = max(1, self.budget // batch.tokens)
        for (stack, layer, whole), members in self._groups(variants).items():
            for start in range(0, len(members), together):
                part = members[start : start + together]
                edit = _Swap([variants[index] for index in part], donor, batch)
                skipped = skipped_blocks(self.model, base.blocks, stack, layer, len(part), keep_heads=not whole)
                with torch.no_grad(), FastLinear():
                    with skipped, seen_parts(self.model, edit.names, edit):
                        states = self._states(batch, base.ids.repeat(len(part), 1))
                    metric = batch.metric(self._read(states))
                found[part] = metric.double().cpu().view(len(part), -1)
        return found

    def gradients(self, batch: PairBatch, base: Recorded, donor: Recorded, fractions: Sequence[float]) -> Values:
        """The metric's gradients with respect to all slots, averaged over points between the base and the donor.

        The path changes the states of block 0, from which everything else is computed.
        """
        totals: dict[Slot, Tensor] = {}
        for fraction in fractions:
            for slot, one in self._gradients(batch, base, donor, fraction).items():
                totals[slot] = totals[slot] + one if slot in totals else one
        return {slot: total / len(fractions) for slot, total in totals.items()}

    def _gradients(self, batch: PairBatch, base: Recorded, donor: Recorded, fraction: float) -> dict[Slot, Tensor]:
        values: dict[Slot, Tensor] = {}

        def see(slot: Slot, value: Tensor) -> Tensor | None:
            changed = None
            if slot.name == RESIDUAL and slot.layer == 0:
                one, other = base.values[slot], donor.values[slot]
                value = changed = (one + fraction * (other - one)).detach().requires_grad_()
            if slot.name == HEAD:  # the model continues from what is returned
                value = changed = value.view_as(value)
            values[slot] = value
            return changed

        with torch.enable_grad():
            with seen_parts(self.model, {slot.name for slot in base.values}, see):
                states = self._states(batch, base.ids)
            metric = batch.metric(self._read(states)).sum()
            found = torch.autograd.grad(metric, list(values.values()), allow_unused=True, materialize_grads=True)
        return dict(zip(values, found, strict=True))

    def _states(self, batch: PairBatch, ids: Tensor) -> Tensor:
        """The states of the last block at the positions that predict the answer."""
        with tap(self.model, hidden=True) as seen:
            self.model.module.base_model(**batch.inputs(self.model, ids))
        return seen.hidden[self.model.anatomy.predicts.name][-1][:, batch.place]

    def _groups(self, variants: Sequence[Sequence[Part]]) -> dict[tuple[str, int, bool], list[int]]:
        """Variants by the first block that has to run, and whether its attention has to."""
        order = {stack.name: at for at, stack in enumerate(self.model.anatomy.stacks)}
        groups: dict[tuple[str, int, bool], list[int]] = {}
        for index, parts in enumerate(variants):
            if parts:
                lowest = min(parts, key=lambda one: (order[one.stack], one.layer))
                whole = any(one.name in (*INPUTS, RESIDUAL) for one in parts)
                stack, layer = first_block(self.model, lowest.stack, lowest.layer)
                groups.setdefault((stack, layer, whole), []).append(index)
        return groups


class _Swap:
    """Puts a donor's values into the parts of each variant."""

    def __init__(self, variants: Sequence[Sequence[Part]], donor: "Donated | Values", batch: PairBatch) -> None:
        self._donor, self._batch, self._num = donor, batch, len(variants)
        self._parts: dict[Slot, list[tuple[int, Part]]] = {}
        for variant, parts in enumerate(variants):
            for part in parts:
                self._parts.setdefault(part.slot, []).append((variant, part))
        self.names = {slot.name for slot in self._parts}

    def __call__(self, slot: Slot, value: Tensor) -> Tensor | None:
        if slot not in self._parts:
            return None
        new = value.clone().unflatten(0, (self._num, -1))
        given = self._donor[slot].to(value)
        for variant, part in self._parts[slot]:
            if part.name == RESIDUAL:
                here = self._batch.at(part.position, part.stack).to(value.device)
                new[variant][here] = given[here]
            else:
                part.of(new[variant]).copy_(part.of(given))
        return new.flatten(0, 1)


def first_order(
    parts: Sequence[Part], gradients: Values, base: Recorded, donor: "Donated | Values", batch: PairBatch
) -> Float[np.ndarray, "part pair"]:
    """Gradient times difference, summed over each part."""
    found, products = [], dict[Slot, Tensor]()
    for part in parts:
        if part.slot not in products:
            own = base.values[part.slot]
            product = (gradients[part.slot].double() * (donor[part.slot] - own).double()).sum(-1)
            products[part.slot] = product.unflatten(0, (batch.size, -1))
        product = products[part.slot]
        if part.name == RESIDUAL:
            product = product[:, 0] if product.dim() == 3 else product
            product = product * batch.at(part.position, part.stack).to(product.device)
        elif part.name != ATTENTION and part.head >= 0:
            product = product[..., part.head] if part.name == HEAD else product[..., part.head, :]
        found.append(product.reshape(batch.size, -1).sum(1).cpu().numpy())
    return np.array(found)
