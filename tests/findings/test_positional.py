"""Positional heads of one seed: selection and the three numbers."""

import numpy as np
import pandas as pd
import pytest

from infoflow.findings import FINDINGS, evaluate, positional_heads

from .groups import models_of


def test_numbers_of_each_seed(make_study):
    found = positional_heads().estimates(models_of(make_study().tables()))
    # .97 at offset −1; .40 at offset 2; confidence of the two heads whose share reaches .9
    np.testing.assert_allclose(found.values_UK, [[0.97, 0.40, (0.93 + 0.88) / 2]] * 3)
    assert found.replicates_URK.shape == (3, 40, 3)


def test_heads_may_differ_between_seeds(make_study):
    """A head is selected in its own seed."""
    tables = make_study().tables()
    for name in ("head_positional", "head_confidence"):
        table = tables[name]
        moved = table["head"].where(table["seed"] != 2, 1 - table["head"])
        tables[name] = table.assign(head=moved).sample(frac=1, random_state=1)
    found = positional_heads().estimates(models_of(tables))
    np.testing.assert_allclose(found.values_UK, [[0.97, 0.40, 0.905]] * 3)


def test_heads_selected_by_the_estimate_are_followed_through_the_replicates(make_study):
    tables = make_study(noise=0.3).tables()
    found = positional_heads().estimates(models_of(tables))
    table = tables["head_positional"]
    rows = table[table["trained"] & (table["seed"] == 1) & (table["layer"] == 0) & (table["head"] == 0)]
    np.testing.assert_array_equal(found.replicates_URK[0, :, 0], rows["replicates"].iloc[0])
    assert found.replicates_URK[0, :, 0].mean() == pytest.approx(0.97, abs=0.2)  # not the maximum over heads


def test_no_positional_head_refutes_the_claim(make_study):
    study = make_study(noise=0.001)
    study.heads = dict.fromkeys(study.heads, 0.5)
    row = evaluate(study.tables(), [FINDINGS["heads:V8"]]).iloc[0]
    assert row["verdict"] == "fails"
    assert row["reason"].startswith("Share of tokens at which the most positional head")  # none has a confidence
    assert "mean confidence of the positional heads: undefined" in row["note"]


def test_cross_attention_and_decoder_heads_do_not_count(make_study):
    tables = make_study().tables()
    table = tables["head_positional"]
    cross = table.assign(kind="cross", value=0.99)
    decoder = table.assign(stack="decoder", value=0.99)
    found = positional_heads().estimates(models_of({**tables, "head_positional": pd.concat([cross, table, decoder])}))
    assert found.values_UK[0, 0] == 0.97


def test_only_neighbouring_offsets_measured(make_study):
    """Nothing is then said of other offsets."""
    study = make_study(noise=0.001)
    full = evaluate(study.tables(), [FINDINGS["heads:V8"]]).iloc[0]
    assert "the same at any other offset: 0.4" in full["note"]
    del study.heads[1, 1, 2]
    row = evaluate(study.tables(), [FINDINGS["heads:V8"]]).iloc[0]
    assert row["verdict"] == "holds"
    assert "other offset" not in row["note"]
