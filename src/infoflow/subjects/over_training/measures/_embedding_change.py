"""The distance of frequent and rare tokens' embeddings from their final values."""

# V type, D width

import numpy as np
import pandas as pd
from jaxtyping import Int

from infoflow.foundation import UserError
from infoflow.models import Model
from infoflow.results import Column, TableSchema

from ._frequency_deciles import frequency_deciles

EMBEDDING_CHANGE = TableSchema(
    name="embedding_change",
    version=1,
    description="Distance of rows of the input embedding matrix from those of the last checkpoint: deciles of "
    "the types "
    "of the counted text.",
    light=True,
    columns=(
        Column(
            name="decile",
            dtype="int64",
            unit="",
            description="tenth of the types by their number in the counted text, from 0, the most frequent; -1: types "
            "that never occur in it, among them special ones",
        ),
        Column(name="types", dtype="int64", unit="types", description="rows of the decile"),
        Column(
            name="value",
            dtype="float64",
            unit="",
            description="displacement: |E - F| / |F - mean F| over the decile's rows, E of the checkpoint, F of the "
            "last one, mean F over all rows; not aligned",
        ),
    ),
)


def embedding_change(model: Model, final: Model, counts: Int[np.ndarray, " V"]) -> pd.DataFrame:
    r"""The table `EMBEDDING_CHANGE`: \(\lVert E_t - E_T \rVert_F / \lVert E_T - \bar E_T \rVert_F\) by decile.

    Args:
        model: The checkpoint, t.
        final: The last one, T.
        counts: How often each type occurs in the training text.

    Raises:
        UserError: The models have embeddings of different shapes.
    """
    now, last = _embeddings(model), _embeddings(final)
    if now.shape != last.shape:
        raise UserError(
            f"Embeddings are compared between checkpoints of one training. {model.name} has the shape {now.shape}, "
            f"{final.name} {last.shape}."
        )
    places = np.full(len(now), -1)
    known = min(len(now), len(counts))
    places[:known] = frequency_deciles(counts)[:known]
    moved, spread = (np.square(one).sum(axis=1) for one in (now - last, last - last.mean(axis=0)))
    rows = [
        {"decile": int(decile), "types": int(at.sum()), "value": float(np.sqrt(moved[at].sum() / spread[at].sum()))}
        for decile in np.unique(places)
        for at in [places == decile]
        if spread[at].sum() > 0
    ]
    return EMBEDDING_CHANGE.conform(pd.DataFrame(rows, columns=EMBEDDING_CHANGE.column_names))


def _embeddings(model: Model) -> np.ndarray:
    """(V, D), float64."""
    weight = model.module.get_input_embeddings().weight  # type: ignore[union-attr]
    return weight.detach().cpu().double().numpy()
