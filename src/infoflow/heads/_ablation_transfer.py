"""Do the heads that matter on one corpus matter on another?"""

# H head, R row: the estimate, then its replicates

import numpy as np
import pandas as pd
from jaxtyping import Float

from infoflow.corpus import Corpus
from infoflow.flow import PassOptions
from infoflow.foundation import UserError, stream
from infoflow.models import Model
from infoflow.results import Column, TableSchema, estimate, estimate_columns

from ._ablation_measure import ablation

ABLATION_TRANSFER = TableSchema(
    name="ablation_transfer",
    version=1,
    description="correlation, over the heads of a model, of the change of the loss that each one's ablation makes on "
    "two corpora",
    columns=(
        Column(name="kind", dtype="string", unit="", description="heads compared: all, or one kind (encoder-self, …)"),
        *estimate_columns(
            "Pearson's r",
            "correlation over heads",
            "95 % quantile of the correlation with the heads of the second corpus shuffled",
            "heads",
        ),
    ),
)
_SHUFFLES = 1000


def ablation_transfer(
    model: Model,
    first: Corpus,
    second: Corpus,
    *,
    sentences: int | None = None,
    options: PassOptions | None = None,
) -> pd.DataFrame:
    """Pearson's r between the effects of single ablations on two corpora, for all heads and for each kind.

    Intervals resample the sentences of both corpora, each on its own.

    Raises:
        UserError: The corpora are one and the same.

    Source: [@michel2019].
    """
    if first.digest == second.digest:
        raise UserError("ablation_transfer compares two corpora, such as two domains. Got one and the same twice.")
    tables = [ablation(model, corpus, sentences=sentences, options=options) for corpus in (first, second)]
    changes = [np.array([[v, *r] for v, r in zip(t["value"], t["replicates"], strict=True)]).T for t in tables]
    changes[1] = np.concatenate([changes[1][:1], changes[1][:0:-1]])  # the same weights would pair unrelated sentences
    names = (tables[0]["stack"] + "-" + tables[0]["kind"]).to_numpy()
    kinds = ["all", *dict.fromkeys(names)] if len(set(names)) > 1 else ["all"]
    rows = []
    for kind in kinds:
        x_RH, y_RH = (part[:, (names == kind) | (kind == "all")] for part in changes)
        r = _correlation(x_RH, y_RH)
        order = stream("ablation-transfer", kind).random((_SHUFFLES, x_RH.shape[1])).argsort(axis=1)
        shuffled = _correlation(np.broadcast_to(x_RH[:1], order.shape), y_RH[0][order])
        rows.append({"kind": kind, **estimate(r[0], r[1:], float(np.quantile(shuffled, 0.95)), x_RH.shape[1])})
    return ABLATION_TRANSFER.conform(pd.DataFrame(rows))


def _correlation(x_RH: Float[np.ndarray, "row head"], y_RH: Float[np.ndarray, "row head"]) -> Float[np.ndarray, " row"]:
    x, y = (part - part.mean(axis=1, keepdims=True) for part in (x_RH, y_RH))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (x * y).sum(axis=1) / np.sqrt((x * x).sum(axis=1) * (y * y).sum(axis=1))
