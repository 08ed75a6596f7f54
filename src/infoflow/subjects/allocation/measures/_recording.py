"""Results of a recorder as tables and, for single parameters, tensors; in a separate folder."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors.torch import load_file, save_file
from torch import Tensor

from infoflow.foundation import NUM_REPLICATES, UserError, block_interval, sealed_folder, stream
from infoflow.results import estimate, read_table, write_table

from ._cells import ATTENTION, Cell, bin_edges
from ._history import NEVER, PARAMETER_FIGURES, reliability_rows
from ._recorder import LossChangeRecorder
from ._tables import (
    ALLOCATION_GROUPS,
    ALLOCATION_HEADS,
    ALLOCATION_HISTOGRAM,
    ALLOCATION_HURTING,
    ALLOCATION_RELIABILITY,
    ALLOCATION_STEPS,
    ALLOCATION_WINDOWS,
    TABLES,
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Recording:
    """Tables by name, and tensors of each parameter by `parameter:field`.

    The fields are counts (`hurt`, `zero`, `last`), `largest` and `smallest` allocation, `largest_update`, and sums over
    chords: `total`, `squares`, two `half`s.
    """

    tables: dict[str, pd.DataFrame]
    parameters: dict[str, Tensor]

    @classmethod
    def of(cls, recorder: LossChangeRecorder) -> "Recording":
        """The recorder's results so far."""
        rows = {
            ALLOCATION_WINDOWS.name: _windows(recorder),
            ALLOCATION_STEPS.name: _steps(recorder),
            ALLOCATION_GROUPS.name: _groups(recorder),
            ALLOCATION_HEADS.name: _heads(recorder),
            ALLOCATION_HURTING.name: _hurting(recorder),
            ALLOCATION_RELIABILITY.name: reliability_rows(recorder),
            ALLOCATION_HISTOGRAM.name: _histogram(recorder),
        }
        frames = {name: pd.DataFrame(own, columns=pd.Index(_SCHEMAS[name].column_names)) for name, own in rows.items()}
        tables = {name: _SCHEMAS[name].conform(frame) for name, frame in frames.items()}
        return cls(tables=tables, parameters=_parameters(recorder))

    def write(self, folder: Path) -> None:
        """Write the folder atomically, replacing an earlier one."""
        with sealed_folder(folder) as temporary:
            for schema in TABLES:
                write_table(temporary / f"{schema.name}.parquet", self.tables[schema.name], schema)
            save_file(self.parameters, temporary / "parameters.safetensors")

    @classmethod
    def read(cls, folder: Path) -> "Recording":
        """The recording in a folder."""
        tables = {file.stem: read_table(file).frame for file in sorted(folder.glob("*.parquet"))}
        if not tables:
            raise UserError(f"{folder} holds no recording: it has no tables. Give the folder a recorder wrote (`out`).")
        return cls(tables=tables, parameters=load_file(folder / "parameters.safetensors"))


Rows = list[dict[str, Any]]
_SCHEMAS = {schema.name: schema for schema in TABLES}


def _targets(recorder: LossChangeRecorder) -> list[dict[str, str]]:
    return [{"set": recorder.targets.sets[index].name, "term": term} for index, term in recorder.targets.rows]


def _keys(cell: Cell) -> dict[str, Any]:
    return {"component": cell.component, "stack": cell.stack, "layer": cell.layer, "kind": cell.kind}


def _windows(recorder: LossChangeRecorder) -> Rows:
    history = recorder.history
    losses, sums, residuals = history.losses_W2G, history.sums_WGC, history.mean_residuals_WG
    figures = history.figures_WF
    return [
        {
            **target,
            "window": window,
            "begin": start,
            "end": end,
            "loss_start": losses[window, 0, row],
            "loss_end": losses[window, 1, row],
            "allocated": sums[window, row].sum(),
            "residual": residuals[window, row],
            **dict(zip(PARAMETER_FIGURES, figures[window] if row == 0 else [np.nan] * 5, strict=True)),
        }
        for row, target in enumerate(_targets(recorder))
        for window, (start, end) in enumerate(history.ends_W2)
    ]


def _steps(recorder: LossChangeRecorder) -> Rows:
    groups = recorder.cells.groups
    place = recorder.cells.merged(groups)
    sums = recorder.history.sums_WGC
    return [
        {**target, "window": window, "begin": start, "end": end, **_keys(group), "value": value}
        for row, target in enumerate(_targets(recorder))
        for window, (start, end) in enumerate(recorder.history.ends_W2)
        for group, value in zip(groups, np.bincount(place, sums[window, row], len(groups)), strict=True)
    ]


def _groups(recorder: LossChangeRecorder) -> Rows:
    cells, groups = recorder.cells, recorder.cells.groups
    place = cells.merged(groups)
    sizes = np.bincount(place, cells.sizes, len(groups)).astype(int)
    rows: Rows = []
    for row, target in enumerate(_targets(recorder)):
        totals_PC, shares, count = _totals(recorder, row)
        whole = totals_PC.sum()
        for number, group in enumerate(groups):
            sums = totals_PC[:, place == number].sum(axis=1)
            rows.append(
                {
                    **target,
                    **_keys(group),
                    "parameters": sizes[number],
                    "per_parameter": sums.sum() / sizes[number],
                    "share": sums.sum() / whole if whole else np.nan,
                    **part_estimate(sums, shares, whole * sizes[number] / sizes.sum(), count),
                }
            )
    return rows


def _heads(recorder: LossChangeRecorder) -> Rows:
    attention = [(index, cell) for index, cell in enumerate(recorder.cells.cells) if cell.component in _ALL]
    layers: dict[tuple[str, str, int], dict[int, list[int]]] = {}
    for place, cell in attention:
        layers.setdefault((cell.stack, cell.kind, cell.layer), {}).setdefault(cell.head, []).append(place)
    rows: Rows = []
    for row, target in enumerate(_targets(recorder)):
        totals_PC, shares, count = _totals(recorder, row)
        for (stack, kind, layer), heads in layers.items():
            sums = {head: totals_PC[:, places].sum(axis=1) for head, places in heads.items()}
            mean = float(np.mean([total.sum() for head, total in sums.items() if head >= 0]))
            rows += [
                {
                    **target,
                    "stack": stack,
                    "kind": kind,
                    "layer": layer,
                    "head": head,
                    "parameters": int(recorder.cells.sizes[places].sum()),
                    **part_estimate(sums[head], shares, mean, count),
                }
                for head, places in sorted(heads.items())
            ]
    return rows


_ALL = {*ATTENTION, *(f"{name} bias" for name in ATTENTION)}


def _hurting(recorder: LossChangeRecorder) -> Rows:
    counts, levels = recorder.group_counts, recorder.levels
    every = recorder.config.every
    rows: Rows = []
    for row, target in enumerate(_targets(recorder)):
        chords = counts.hurt[row] + counts.helped[row] + counts.zero[row]
        rows += [
            {
                **target,
                "level": levels.level[n],
                **_keys(group),
                "chords": chords[n],
                "updates_per_chord": every,
                "hurt": counts.hurt[row, n] / chords[n],
                "helped": counts.helped[row, n] / chords[n],
                "zero": counts.zero[row, n] / chords[n],
                "last_hurt": counts.last[row, n],
                "largest": counts.largest[row, n],
                "largest_update": counts.largest_update[row, n],
            }
            for n, group in enumerate(levels.groups)
        ]
    return [*rows, *_hurting_parameters(recorder, int(chords[0]))]


def _hurting_parameters(recorder: LossChangeRecorder, chords: int) -> Rows:
    """One row per group: shares over its parameters and all chords, for the first target."""
    counts, cells = recorder.parameter_counts, recorder.cells
    if counts is None:
        return []
    flat, groups = recorder.flat, cells.groups
    place = cells.merged(groups)
    sizes = np.bincount(place, cells.sizes, len(groups))
    hurt, zero = (
        np.bincount(place, cells.sums(flat.views(one)).cpu().numpy(), len(groups)) / sizes / chords
        for one in (counts.hurt, counts.zero)
    )
    last, largest = (_maxima(place, cells.maxima(flat.views(one))) for one in (counts.last, counts.largest))
    return [
        {
            **_targets(recorder)[0],
            "level": "parameter",
            **_keys(group),
            "chords": chords,
            "updates_per_chord": recorder.config.every,
            "hurt": hurt[number],
            "helped": 1 - hurt[number] - zero[number],
            "zero": zero[number],
            "last_hurt": int(last[number]),
            "largest": largest[number],
            "largest_update": NEVER,  # that of each parameter is saved outside the tables
        }
        for number, group in enumerate(groups)
    ]


def _histogram(recorder: LossChangeRecorder) -> Rows:
    """Nonempty histogram bins of each group's parameters, for the first target."""
    histogram = recorder.histogram
    if histogram is None:
        return []
    edges, counts = bin_edges(), histogram.counts_GB
    return [
        {
            **_targets(recorder)[0],
            **_keys(group),
            "low": edges[place][0],
            "high": edges[place][1],
            "count": counts[number, place],
            "chords": histogram.chords,
        }
        for number, group in enumerate(histogram.groups)
        for place in np.flatnonzero(counts[number])
    ]


def _maxima(place: np.ndarray, cells: Tensor) -> np.ndarray:
    largest = np.full(place.max() + 1, -np.inf)
    np.maximum.at(largest, place, cells.cpu().numpy())
    return largest


def _totals(recorder: LossChangeRecorder, row: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Run totals of each part and cell, the parts' shares of the supervised items, and the number of items."""
    index, term = recorder.targets.rows[row]
    items = np.array([part[term] for part in recorder.targets.sets[index].counts])
    return recorder.history.totals_GPC[row], items / items.sum(), int(items.sum())


def _parameters(recorder: LossChangeRecorder) -> dict[str, Tensor]:
    counts = recorder.parameter_counts
    if counts is None:
        return {}
    fields = {name: tensor for name, tensor in counts.state().items() if name not in ("agreement", "sign")}
    return {
        f"{parameter}:{field}": view.cpu().clone()
        for field, tensor in fields.items()
        for parameter, view in zip(recorder.flat.names, recorder.flat.views(tensor), strict=True)
    }


def part_estimate(sums_P: np.ndarray, shares_P: np.ndarray, baseline: float, count: int) -> dict[str, Any]:
    r"""The columns of `estimate_columns` for a sum $v = \sum_p v_p$ over parts that hold shares n_p of the items.

    $$ v_r = v + \sqrt{\tfrac{P}{P-1}} \left(\frac{\sum_p w_{rp} v_p}{\sum_p w_{rp} n_p} - v\right) $$

    w is how often each part is drawn in replicate r; the root corrects the bootstrap of P values, which is too narrow
    by the inverse of this factor. One part gives no interval. The draws are the same for every model, so that models
    evaluated on the same sentences have paired replicates.
    """
    value, parts = float(sums_P.sum()), len(sums_P)
    if parts == 1:
        return {**estimate(value, np.full(NUM_REPLICATES, np.nan), baseline, count), "replicates": []}
    weights = _draws(parts)
    resampled = (weights @ sums_P) / (weights @ shares_P)
    ends = block_interval(value, sums_P - value * shares_P / shares_P.sum(), units=parts)
    replicates = value + np.sqrt(parts / (parts - 1)) * (resampled - value)
    return estimate(value, replicates, baseline, count, ends=ends)


@cache
def _draws(parts: int) -> np.ndarray:
    return stream("allocation-parts", parts).multinomial(parts, np.full(parts, 1 / parts), NUM_REPLICATES) * 1.0
