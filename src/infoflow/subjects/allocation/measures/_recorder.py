"""Loss change allocation while a model trains, in the memory of a few copies of its weights.

```
before an update   θ0 ← θ, once per chord; G ← gradient on the set, unless the last chord left it
after the update   Δ ← θ − θ0; for inner nodes a: A += w_a · gradient(θ0 + a Δ); G' ← gradient(θ)
                   A ← (w_0 G + A + w_1 G') ⊙ Δ; its sums and counts are kept, A is not; G ← G'
```

With a tolerance, G' is computed first, and the inner nodes depend on the remaining residual.
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from infoflow._transformers import PreTrainedModel
from infoflow.foundation import UserError, digest
from infoflow.models import Anatomy
from infoflow.training import Step, TrainingHook

from ._cells import CellGroups, Cells, Histogram, find_cells
from ._gradient import EvaluationSet, FlatParameters, undisturbed
from ._history import PARAMETER_FIGURES, Chord, GroupCounts, History, ParameterCounts, Residuals
from ._rules import Panels, Rule, free_residuals, quadrature, refined
from ._tables import RecordConfig
from ._targets import Channel, Targets, rank

_STATE = 2  # increase when the content of a recorder's checkpoint changes


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _OpenChord:
    module: PreTrainedModel
    end: Tensor | None  # weights at the end; only needed with inner nodes
    delta: Tensor
    middle_slopes: np.ndarray | None  # (target, part), known if a node is in the middle


class LossChangeRecorder(TrainingHook):
    """Allocates the loss changes of a training run to its parameters, as a hook of the loop.

    Recording does not change the training's weights: gradients are computed with `autograd.grad`, and weights, modes,
    buffers and random states are restored from stored copies. Its state is part of the checkpoint, so an interrupted
    run records the same numbers as an uninterrupted one. Under `torchrun` every process takes its share of the
    examples, and gradients are summed over processes.

    Additional memory, in copies of the weights: 2 + the gradients kept (sets × terms × parts; four times these with a
    tolerance), 1 more if there are inner nodes, and 8 to 11 for statistics of single parameters.
    """

    name = "loss-change"

    def __init__(
        self,
        sets: Sequence[EvaluationSet],
        anatomy: Anatomy,
        config: RecordConfig = RecordConfig(),  # noqa: B008 (frozen)
        out: Path | None = None,
    ) -> None:
        """`sets` are evaluated at every node, the first one in full detail; `anatomy` is that of the trained model.

        With `out`, the recording is written there when training ends (see `Recording`).
        """
        self.targets = Targets(sets)
        self.anatomy, self.config, self.out = anatomy, config, out
        settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in config.untold}
        self._key = digest(
            [_STATE, settings, [[s.name, s.sentences, s.tokens, s.totals, self.targets.parts] for s in sets]]
        )
        self.rule = quadrature(config.rule, config.splits)
        self.seconds, self.updates = 0.0, 0
        self._flat: FlatParameters | None = None
        self._restored: dict[str, Tensor] | None = None
        self._start: Tensor | None = None  # weights at the start of the open chord
        self._opening: dict[Channel, Tensor] = {}  # gradients at the start, each divided by the items of its whole set
        self._losses = np.full((len(self.targets.rows), self.targets.parts), np.nan)

    # -- hook ---------------------------------------------------------------------------------------------------------

    def on_step_begin(self, step: Step) -> None:
        """Open a chord, unless one is open."""
        started = time.perf_counter()
        if self._flat is None:
            self._prepare(step)
        if self._start is None:
            self._start = self.flat.read()
            if np.isnan(self._losses).any():
                with undisturbed(step.module):
                    self._open(step.module)
        self.seconds += time.perf_counter() - started

    def on_step_end(self, step: Step) -> None:
        """Close the chord if it is due."""
        started = time.perf_counter()
        self.updates = step.update
        if step.update % self.config.every == 0 or step.update == step.total:
            with undisturbed(step.module):
                self._close(step.module, step.update)
        self.seconds += time.perf_counter() - started

    def on_train_end(self, module: PreTrainedModel) -> None:
        """Write the recording."""
        if self.out is not None and self._flat is not None and rank()[0] == 0:
            from ._recording import Recording  # imports recorders itself

            Recording.of(self).write(self.out)

    def state_dict(self) -> dict[str, Tensor]:
        """State for a resumed run; complete once the first update has been seen."""
        key = torch.tensor(int(self._key, 16) % 2**62)
        if self._flat is None:
            return {"key": key}
        numbers = torch.tensor([self.seconds, float(self.updates)], dtype=torch.float64)
        used = torch.tensor(sorted(self.targets.used), dtype=torch.int64)
        state = {"key": key, "numbers": numbers, "used": used, "losses": torch.from_numpy(self._losses.copy())}
        state |= {f"opening {i} {term} {part}": t for (i, term, part), t in self._opening.items()}
        state |= {"start": self._start} if self._start is not None else {}
        for name, piece in self._parts().items():
            state |= {f"{name}.{field}": tensor for field, tensor in piece.state().items()}
        return state

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Keep the state until the first update provides the module."""
        if "key" not in state or int(state["key"]) != int(self._key, 16) % 2**62:
            begun = "with other settings or sentences" if "key" in state else "without recording loss changes"
            raise UserError(
                f"This training was begun {begun}, so its recording would have a gap.\n"
                "Train into another output folder, or continue as it was begun."
            )
        self._restored = state if "numbers" in state else None

    # -- preparation --------------------------------------------------------------------------------------------------

    @property
    def flat(self) -> FlatParameters:
        """The trained parameters as one vector."""
        assert self._flat is not None, "the recorder has seen no update"
        return self._flat

    def _prepare(self, step: Step) -> None:
        self._flat = FlatParameters(step.module)
        with undisturbed(step.module):
            self.targets.prepare(step.module, self._flat, self.anatomy)
        self.cells: Cells = find_cells(step.module, self.anatomy, self.config.separate_bias)
        self.levels = CellGroups.of(self.cells)
        chords = -(-step.total // self.config.every)
        num, parts = len(self.targets.rows), self.targets.parts
        self.history = History(num, parts, len(self.cells.cells), -(-chords // self.config.windows))
        self.group_counts, self.residuals = GroupCounts(num, len(self.levels.groups)), Residuals(num)
        self.panels = Panels() if self.config.tolerance else None
        self.parameter_counts, self.histogram = None, None
        if self.config.parameters:
            shapes = [parameter.shape for parameter in self._flat.parameters]
            self.parameter_counts = ParameterCounts(self._flat.empty(), parts > 1)
            self.histogram = Histogram(self.cells, shapes, self._flat.parameters[0])
        if self._restored is not None:
            self._restore(self._restored)
            self._restored = None

    def _parts(self) -> dict[str, History | GroupCounts | Residuals | ParameterCounts | Histogram | Panels]:
        pieces = {"history": self.history, "groups": self.group_counts, "residuals": self.residuals}
        details = {"parameters": self.parameter_counts, "histogram": self.histogram, "panels": self.panels}
        return pieces | {name: piece for name, piece in details.items() if piece is not None}

    def _restore(self, state: dict[str, Tensor]) -> None:
        device = self.flat.parameters[0].device
        self.seconds, updates = state["numbers"].tolist()
        self.updates = int(updates)
        self.targets.used = set(state["used"].tolist())
        self._losses = state["losses"].numpy().copy()
        # Copies: the last bit of products of vectors depends on their alignment in memory.
        self._start = state["start"].to(device, copy=True) if "start" in state else None
        for name, tensor in state.items():
            if name.startswith("opening "):
                _, index, term, part = name.split(" ")
                self._opening[int(index), term, int(part)] = tensor.to(device, copy=True)
        for name, piece in self._parts().items():
            prefix = f"{name}."
            piece.load({key.removeprefix(prefix): t for key, t in state.items() if key.startswith(prefix)})

    # -- one chord ----------------------------------------------------------------------------------------------------

    @property
    def _looks_at_ends(self) -> bool:
        return self.rule.first > 0 or self.rule.last > 0

    def _open(self, module: PreTrainedModel) -> None:
        for row, (index, _) in enumerate(self.targets.rows):
            if np.isnan(self._losses[row]).any():  # the first term of a set computes the other terms too
                for part in range(self.targets.parts):
                    self._opening |= self._at_end(module, index, part)

    def _close(self, module: PreTrainedModel, update: int) -> None:
        start = self.history.ends_W2[-1, 1] if len(self.history) else 0
        window_ends = self.history.completes_window
        inner = self.rule.inner
        passes_middle = any(node == 0.5 for node, _ in inner)
        middle = self._looks_at_ends and (passes_middle or (self.config.check_rules and window_ends))
        end = self.flat.read() if inner or middle else None
        assert self._start is not None
        delta = self._end_minus_start(end)
        before, first = self._losses.copy(), self.targets.slopes(self._opening, delta) if self._opening else None
        middle_slopes = np.zeros_like(before) if middle else None
        chord = _OpenChord(module=module, end=end, delta=delta, middle_slopes=middle_slopes)
        if self.config.tolerance:
            sums, ends = self._refined(chord, before)
        else:
            sums, ends = self._opening, None
            for channel in sums:
                sums[channel].mul_(self.rule.first)
            if not self._looks_at_ends:
                channels = [c for piece in self.targets.pieces for c in self.targets.channels(*piece)]
                sums = {channel: self.flat.empty() for channel in channels}
            for node, weight in _with_middle(inner, middle):
                self._add_node(chord, sums, node, weight)
        if end is not None:
            self.flat.write(end)
        figures, allocated, last = self._finish(module, sums, ends, delta, update, window_ends)
        self._count(
            Chord(
                start=int(start),
                end=update,
                sums_GPC=allocated,
                loss_before_G=before.sum(axis=1),
                loss_after_G=self._losses.sum(axis=1),
                parameters=figures,
            ),
            first,
            None if middle_slopes is None else middle_slopes.sum(axis=1),
            last,
        )
        self._start = None

    def _end_minus_start(self, end: Tensor | None) -> Tensor:
        """Δ, in the memory of the start."""
        assert self._start is not None
        if end is not None:
            return self._start.neg_().add_(end)
        views = self.flat.views(self._start.neg_())
        with torch.no_grad():
            torch._foreach_add_(views, [p.detach() for p in self.flat.parameters])
        return self._start

    def _add_node(self, chord: _OpenChord, sums: dict[Channel, Tensor], node: float, weight: float) -> None:
        assert chord.end is not None
        self.flat.write(torch.add(chord.end, chord.delta, alpha=node - 1.0))
        for index, part in self.targets.pieces:
            _, gradients = self.targets.gradients(chord.module, index, part)
            for channel, gradient in gradients.items():
                if weight:
                    sums[channel].add_(gradient, alpha=weight)
                if node == 0.5 and chord.middle_slopes is not None:
                    chord.middle_slopes[self.targets.row(channel), part] = float(torch.dot(gradient, chord.delta))

    def _refined(self, chord: _OpenChord, before: np.ndarray) -> tuple[dict[Channel, Tensor], dict[Channel, Tensor]]:
        """Mean gradients on as many panels as the tolerance requires, and the gradients at the end."""
        ends: dict[Channel, Tensor] = {}
        for index, part in self.targets.pieces:
            ends |= self._at_end(chord.module, index, part)
        change_G = (self._losses - before).sum(axis=1)

        def mean_at(nodes: list[float]) -> dict[Channel, Tensor]:
            total = {channel: self.flat.empty() for channel in ends}
            for node in nodes:
                self._add_node(chord, total, node, 1 / len(nodes))
            return total

        def is_close(means: Mapping[Channel, Tensor]) -> bool:
            residual_G = change_G - self.targets.slopes(means, chord.delta)
            return bool((np.abs(residual_G) <= self.config.tolerance).all())

        both = {channel: opening.lerp_(ends[channel], 0.5) for channel, opening in self._opening.items()}
        sums, panels = refined(both, mean_at, is_close, self.config.splits, self.config.max_splits)
        assert self.panels is not None
        self.panels.add(panels)
        return sums, ends

    def _finish(
        self,
        module: PreTrainedModel,
        sums: dict[Channel, Tensor],
        at_end: dict[Channel, Tensor] | None,
        delta: Tensor,
        update: int,
        tail: bool,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Complete the sums with the gradients at the end, unless they are included already, and sum them over cells.

        The next chord starts with these gradients.
        """
        targets = self.targets
        allocated = np.zeros((len(targets.rows), targets.parts, len(self.cells.cells)))
        halves: list[Tensor | None] = [None, None]
        opening, last = {}, np.zeros(len(targets.rows))
        for index, part in targets.pieces:
            channels = targets.channels(index, part)
            ends = self._at_end(module, index, part) if at_end is None else {c: at_end[c] for c in channels}
            for channel in channels:
                row, allocation = targets.row(channel), sums.pop(channel)
                if self.rule.last and at_end is None:
                    allocation.add_(ends[channel], alpha=self.rule.last)
                if channel in ends:
                    last[row] += float(torch.dot(ends[channel], delta))
                allocation.mul_(delta)
                allocated[row, part] = self.cells.sums(self.flat.views(allocation)).cpu().numpy()
                if row == 0 and self.parameter_counts is not None:
                    side = part % 2
                    halves[side] = allocation if halves[side] is None else halves[side].add_(allocation)  # type: ignore[union-attr]
            opening |= ends
        self._opening = opening
        return self._count_parameters(halves, update, tail), allocated, last if self._looks_at_ends else None

    def _count_parameters(self, halves: list[Tensor | None], update: int, tail: bool) -> np.ndarray:
        """Statistics of single parameters for the first target."""
        counts, (even, odd) = self.parameter_counts, halves
        if counts is None or even is None:
            return np.full(len(PARAMETER_FIGURES), np.nan)
        if odd is not None:
            shares = self._half_shares()
            counts.compare(even / shares[0], odd / shares[1])
            even = even.add_(odd)
        if tail and self.histogram is not None:
            self.histogram.add(even)
        return counts.add(even, update, tail)

    def _half_shares(self) -> tuple[float, float]:
        index, term = self.targets.rows[0]
        counts = [part[term] for part in self.targets.sets[index].counts]
        return sum(counts[0::2]) / sum(counts), sum(counts[1::2]) / sum(counts)

    def _count(
        self, chord: Chord, first: np.ndarray | None, middle: np.ndarray | None, last: np.ndarray | None
    ) -> None:
        change = chord.loss_after_G - chord.loss_before_G
        found: dict[Rule | None, np.ndarray] = free_residuals(change, first, middle, last)
        self.residuals.add({**found, None: chord.residual_G}, change)
        self.group_counts.add(chord.sums_GC @ self.levels.matrix.T, chord.end)
        self.history.add(chord)

    def _at_end(self, module: PreTrainedModel, index: int, part: int) -> dict[Channel, Tensor]:
        """Set the part's losses at the current weights; return gradients if the rule uses the ends of chords."""
        if self._looks_at_ends:
            losses, gradients = self.targets.gradients(module, index, part)
        else:
            losses, gradients = self.targets.losses(module, index, part), {}
        for term, loss in losses.items():
            self._losses[self.targets.row((index, term, part)), part] = loss
        return gradients


def _with_middle(inner: tuple[tuple[float, float], ...], middle: bool) -> tuple[tuple[float, float], ...]:
    """Inner nodes with their weights; if requested, also the middle, with weight 0 if the rule does not use it."""
    if not middle or any(node == 0.5 for node, _ in inner):
        return inner
    return (*inner, (0.5, 0.0))
