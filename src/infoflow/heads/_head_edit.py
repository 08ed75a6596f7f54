"""Which heads of which variant of a batch are replaced."""

# V variant, B sentence (of all variants), H head

from collections.abc import Sequence

import torch
from torch import Tensor

from infoflow.models import HeadCall, Site

from ._head_sets import HeadSet
from ._replacement import Replacement, zeros


class HeadEdit:
    """Replaces heads, by nothing unless told otherwise, on their way into the output projections: each of V variants of
    the batch loses its own set.

    The model runs on the batch repeated V times (`x.repeat(V, 1)`).
    """

    def __init__(self, variants: Sequence[HeadSet], replacement: Replacement = zeros) -> None:
        self._replacement = replacement
        self._heads: dict[Site, list[tuple[int, int]]] = {}
        self._num = len(variants)
        for variant, heads in enumerate(variants):
            for stack, kind, layer, head in sorted(heads):
                self._heads.setdefault(Site(stack=stack, kind=kind, layer=layer), []).append((variant, head))

    def __call__(self, call: HeadCall) -> Tensor | None:
        chosen = self._heads.get(call.site)
        if chosen is None:
            return None
        mask_VH = torch.zeros(self._num, call.heads.shape[2], dtype=torch.bool)
        mask_VH[tuple(zip(*chosen, strict=True))] = True
        sentences = call.heads.shape[0] // self._num
        mask_BH = mask_VH.repeat_interleave(sentences, dim=0).to(call.heads.device)
        return torch.where(mask_BH[:, None, :, None], self._replacement(call), call.heads)
