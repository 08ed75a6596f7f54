"""The same states in control spaces proposed by critics of cosine similarity."""

import torch
from jaxtyping import Float
from torch import Tensor

from infoflow.foundation import UserError

from ._views import centred

SPACES = ("raw", "centred", "standardised", "rank")


def check_spaces(spaces: tuple[str, ...]) -> None:
    if not spaces or (unknown := [space for space in spaces if space not in SPACES]):
        got = unknown[0] if spaces else "none"
        raise UserError(f"spaces must be some of {', '.join(SPACES)}. Got {got}.")


def in_space(states: Float[Tensor, "occurrence width"], space: str) -> Float[Tensor, "occurrence width"]:
    """The states in the given space, in float64.

    | space          | states                                         | so that the cosine is             |
    |----------------|------------------------------------------------|-----------------------------------|
    | `raw`          | as they are                                    | the published one                 |
    | `centred`      | less their mean                                | free of a common offset           |
    | `standardised` | less their mean, each dimension of variance 1  | not ruled by a few dimensions     |
    | `rank`         | ranks of the coordinates within each state     | Spearman's correlation            |

    A constant dimension becomes 0 under `centred` and `standardised`; a constant state under `rank`.

    Source: [@timkey2021].
    """
    states = states.to(torch.float64)
    if space == "raw":
        return states
    if space == "rank":
        from scipy.stats import rankdata  # slow import

        return torch.from_numpy(rankdata(states.numpy(), axis=1)) - (states.shape[1] + 1) / 2
    shifted = centred(states)
    if space == "centred":
        return shifted
    spread = shifted.square().mean(0).sqrt()
    return shifted / torch.where(spread > 0, spread, 1.0)
