"""The depth at which a document's evidence enters."""

from typing import NamedTuple

import torch

from infoflow.foundation import UserError, as_tensor
from infoflow.objectives import Numbers

_LEAST_GAIN = 0.05  # at the top: below it there is no entry to locate


class EvidenceEntry(NamedTuple):
    """Two statistics of one curve, in states 0..L; NaN without a gain."""

    half: float  # first state with at least half of the top's gain
    centre: float  # mean state of the steps, weighted by their size


def evidence_entry(gains: Numbers) -> EvidenceEntry:
    r"""The first state with half of the final gain, and the centre of gravity of its steps.

    $$ \mathrm{half} = \min\{l : g_l \ge g_L / 2\}, \qquad
       \mathrm{centre} = \frac{\sum_{l \ge 1} l \, (g_l - g_{l-1})}{\sum_{l \ge 1} (g_l - g_{l-1})} $$

    Negative steps are kept. Both are NaN if the top gains less than 0.05.

    Args:
        gains: (state,): the answer's probability with the document minus that without, for states 0..L.

    Raises:
        UserError: There are fewer than two states, or a gain is not a number.
    """
    values = as_tensor(gains).double()
    if values.ndim != 1 or len(values) < 2 or not bool(torch.isfinite(values).all()):
        raise UserError(f"gains must be finite, one for each of at least two states. Got {tuple(values.shape)}.")
    top, steps = float(values[-1]), values.diff()
    if top < _LEAST_GAIN or float(steps.sum()) == 0:
        return EvidenceEntry(float("nan"), float("nan"))
    half = int((values >= top / 2).nonzero()[0])
    layers = torch.arange(1, len(values), dtype=torch.float64)
    return EvidenceEntry(float(half), float((layers * steps).sum() / steps.sum()))
