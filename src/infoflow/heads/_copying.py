"""Whether a head, attending to a token, raises that token's logit."""

# B sequence, H head, P place, d head width, D model width, V vocabulary

import torch
from jaxtyping import Float, Int
from torch import Tensor

from infoflow.models import Readout

_ROWS = 256  # states read out at a time: rows times vocabulary numbers are held


def logit_directions(
    readout: Readout, states: Float[Tensor, "row width"], tokens: Int[Tensor, " row"]
) -> Float[Tensor, "row width"]:
    r"""Gradient of a token's logit, less the vocabulary's mean, with respect to the last block's output.

    $$ g = \nabla_s \Big( \ell_x(s) - \frac{1}{|V|} \sum_v \ell_v(s) \Big) $$

    So $g \cdot u$ is what a vector u, added there, does to the logit through the linearised final norm and unembedding
    (and whatever else the head of the model holds).
    """
    parts = []
    for rows, wanted in zip(states.split(_ROWS), tokens.split(_ROWS), strict=True):
        with torch.inference_mode(False), torch.enable_grad():
            given = rows.detach().clone().requires_grad_()
            logits = readout(given)
            score = logits.gather(1, wanted.clone().unsqueeze(1)).squeeze(1) - logits.mean(1)
            parts.append(torch.autograd.grad(score.sum(), given)[0])
    return torch.cat(parts)


def copying_scores(
    values: Float[Tensor, "sequence head place width"],
    output: Float[Tensor, "head width model_width"],
    directions: Float[Tensor, "sequence place model_width"],
) -> Float[Tensor, "sequence head place"]:
    r"""What attending to each token does to its own logit: $g_j \cdot v_j W_O^h$, in logits.

    The direct path only: what later blocks make of it is left out, and the bias of W_O belongs to no head.

    Source: [@olsson2022], who take the sign and size of this effect as the copying score.
    """
    readers = torch.einsum("bpD,hdD->bhpd", directions, output.to(directions.dtype))
    return (values.to(directions.dtype) * readers).sum(3)
