"""Correlation of ablation effects between two corpora."""

import numpy as np
import pytest

from infoflow.foundation import UserError
from infoflow.heads import ablation, ablation_transfer


def test_agrees_with_numpy(matched_models, parallel_corpus):
    model = matched_models["translation"]
    first, second = parallel_corpus.select(range(8)), parallel_corpus.select(range(8, 18))
    table = ablation_transfer(model, first, second).set_index("kind")
    one, two = ablation(model, first), ablation(model, second)
    assert table.loc["all", "value"] == pytest.approx(np.corrcoef(one["value"], two["value"])[0, 1])
    cross = (one["kind"] == "cross").to_numpy()
    expected = np.corrcoef(one["value"][cross], two["value"][cross])[0, 1]
    assert table.loc["decoder-cross", "value"] == pytest.approx(expected)
    assert set(table.index) == {"all", "encoder-self", "decoder-self", "decoder-cross"}
    assert (table["baseline"] < 1).all()
    with pytest.raises(UserError, match="the same corpus twice"):
        ablation_transfer(model, first, first)
