"""How far weights moved, entry by entry."""

import numpy as np
import pytest
import torch
from adaptation.toy_task import toy_before

from infoflow.adaptation import tuning_weights


def test_rows_are_those_of_the_named_weights(tuned):
    table = tuning_weights(toy_before(), tuned, seeds=[7, 9])
    assert set(table.tuning_seed) == {7, 9}
    names = {"query": "attention.self.query", "mlp_in": "intermediate.dense", "mlp_out": "output.dense"}
    for seed, model in zip((7, 9), tuned, strict=True):
        for layer in range(3):
            for component, name in names.items():
                then, now = (
                    torch.cat(
                        [p.detach().flatten() for p in body.encoder.layer[layer].get_submodule(name).parameters()]
                    ).double()
                    for body in (toy_before().module.bert, model.module.bert)
                )
                row = table[(table.tuning_seed == seed) & (table.layer == layer) & (table.component == component)]
                assert len(row) == 1
                assert row.relative.item() == pytest.approx(float((now - then).norm() / then.norm()), rel=1e-9)
                assert row.cosine.item() == pytest.approx(
                    float(torch.nn.functional.cosine_similarity(now, then, dim=0)), rel=1e-9
                )
                assert row.parameters.item() == len(then)


def test_every_weight_of_the_body_is_counted_once_and_heads_are_not(tuned):
    table = tuning_weights(toy_before(), tuned[:1])
    body = sum(p.numel() for name, p in tuned[0].module.bert.named_parameters() if "pooler" not in name)
    assert table.parameters.sum() == body
    assert not {"head", "pooler"} & set(table.component)


def test_nothing_moved():
    table = tuning_weights(toy_before(), [toy_before()])
    assert (table.relative.dropna() == 0).all()
    np.testing.assert_allclose(table.cosine.dropna(), 1)
