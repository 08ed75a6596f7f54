"""Measures of heads give the same in one pass, and in shards that are merged."""

import numpy as np
import pytest
from support import tiny_heads as tiny

from infoflow.flow import PassOptions, measure, measure_shard, merge_shards
from infoflow.heads import (
    Coreference,
    HeadDistance,
    HeadLayerDistance,
    RareTokenScores,
    RelationScores,
    SurfaceStatistics,
)


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_shards_merge_to_the_whole(tmp_path, family):
    corpus = tiny.trees(40)
    model = getattr(tiny, family)(corpus)
    measures = [
        SurfaceStatistics(),
        RelationScores(minimum=10),
        RareTokenScores(top=50),
        HeadDistance(sentences=20),
        HeadLayerDistance(sentences=20),
        Coreference(),
    ]
    options = PassOptions(tokens_per_batch=200)
    whole = measure(model, corpus, measures, options)
    shards = [
        measure_shard(model, corpus, measures, shard, 3, tmp_path / f"shard-{shard}", options) for shard in range(3)
    ]
    merged = merge_shards(model, corpus, measures, shards, tmp_path / "merged", options).tables
    assert set(whole) == set(merged)
    for name, frame in whole.items():
        numbers = [column for column in frame.columns if frame[column].dtype.kind == "f"]
        for column in numbers:
            np.testing.assert_allclose(merged[name][column], frame[column], rtol=1e-6, atol=1e-9, err_msg=name)
    assert whole["head_coreference"].empty
    assert not whole["head_relations"].empty
