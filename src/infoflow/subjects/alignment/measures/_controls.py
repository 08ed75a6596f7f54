"""An alignment with its controls."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from infoflow.corpus import Corpus
from infoflow.foundation import UserError, as_tensor
from infoflow.models import Model

from ._both_ways import ExplicitConfig, align_explicit, initial_encoder
from ._encoders import AlignedEncoder
from ._evaluate import Kind
from ._held_out import linked_vectors
from ._links import AbstractWordLinks, IdentityLinks, LinkedSentences, ShuffledLinks

FITTED_WORDS = 20_000
"""Maximum number of words for fitting the linear map of the unaligned encoder."""


def align_with_controls(
    source: Model,
    target: Model,
    corpus: Corpus,
    out: Path | str,
    *,
    links: AbstractWordLinks | None = None,
    translated: bool = False,
    config: ExplicitConfig | None = None,
) -> dict[Kind, AlignedEncoder]:
    """The explicit alignment and three control encoders. The arguments are those of `align_explicit`.

    | kind               | encoder                   | map                   | what it shows               |
    |--------------------|---------------------------|-----------------------|-----------------------------|
    | `aligned`          | trained on the links      | trained with it       |                             |
    | `unaligned`        | unchanged                 | least squares, same links | the effect of a map only |
    | `shuffled`         | trained on wrong links    | trained with it       | the effect of training on any links |
    | `regulariser only` | trained to stay unchanged | trained, from random weights | the effect of training itself |
    """
    config, links, out = config or ExplicitConfig(), links or IdentityLinks(), Path(out)
    shuffled = ShuffledLinks(seed=config.seed)
    alone = dataclasses.replace(config, attraction=0.0)
    runs: dict[Kind, tuple[AbstractWordLinks, ExplicitConfig]] = {
        "aligned": (links, config),
        "shuffled": (shuffled, config),
        "regulariser only": (links, alone),
    }
    aligned = {
        kind: align_explicit(
            source, target, corpus, out / kind.replace(" ", "-"), links=own, translated=translated, config=settings
        )
        for kind, (own, settings) in runs.items()
    }
    sentences = LinkedSentences(source, target, corpus, links, translated=translated, max_length=config.max_length)
    return aligned | {"unaligned": linearly_aligned(source, target, sentences, config)}


def linearly_aligned(
    source: Model, target: Model, sentences: LinkedSentences, config: ExplicitConfig, words: int = FITTED_WORDS
) -> AlignedEncoder:
    """The unchanged source encoder, under the linear map with the least squared error on `words` linked words."""
    before = initial_encoder(source, target, config)
    fitted = least_squares_map(*linked_vectors(sentences, before, target, words))
    return AlignedEncoder(before.encoder, fitted.module().to(before.encoder.device), config.merge).eval()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LinearMap:
    """y ≈ x W + b."""

    weight: Float[Tensor, "width_x width_y"]
    bias: Float[Tensor, " width_y"]

    def __call__(self, x: Float[Tensor, "word width_x"]) -> Float[Tensor, "word width_y"]:
        return x.to(self.weight) @ self.weight + self.bias

    def module(self) -> nn.Linear:
        """The same map as a layer, in float32."""
        layer = nn.Linear(*self.weight.shape)
        with torch.no_grad():
            layer.weight.copy_(self.weight.mT)
            layer.bias.copy_(self.bias)
        return layer


def least_squares_map(x: Tensor | np.ndarray, y: Tensor | np.ndarray) -> LinearMap:
    r"""The affine map with the smallest squared error; ties go to the smallest weights.

    $$ W, b = \arg\min \| X W + 1 b^\top - Y \|_F^2 $$

    It is the optimum of the explicit alignment if only the projection is trained, without a regulariser.

    Args:
        x: (word, width_x), float32 or float64; computed in float64.
        y: (word, width_y); row i is the counterpart of row i of x.

    Raises:
        UserError: x and y are not matrices, differ in their number of rows, or are not finite.

    Source: [@mikolov2013] (without b).

    >>> x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    >>> fitted = least_squares_map(x, x @ torch.tensor([[1.0], [2.0], [0.0]]) + 5)
    >>> [round(float(value), 6) for value in (*fitted.weight[:2, 0], fitted.bias[0])]
    [1.0, 2.0, 5.0]
    """
    view_x, view_y = _matched(x, y)
    mean_x, mean_y = view_x.mean(dim=0), view_y.mean(dim=0)
    # gelsd: by singular values, so that directions in which x is constant get weight 0.
    weight = torch.linalg.lstsq(view_x - mean_x, view_y - mean_y, driver="gelsd").solution
    return LinearMap(weight=weight, bias=mean_y - mean_x @ weight)


def _matched(
    x: Tensor | np.ndarray, y: Tensor | np.ndarray
) -> tuple[Float[Tensor, "word width_x"], Float[Tensor, "word width_y"]]:
    views = as_tensor(x).to(torch.float64), as_tensor(y).to(torch.float64)
    shapes = [tuple(view.shape) for view in views]
    if any(len(shape) != 2 or 0 in shape for shape in shapes) or shapes[0][0] != shapes[1][0]:
        raise UserError(f"x and y must be matrices of one row per linked word. Got shapes {shapes[0]} and {shapes[1]}.")
    if not all(bool(view.isfinite().all()) for view in views):
        raise UserError("x and y must be finite. One holds NaN or infinity: drop those rows first.")
    return views
