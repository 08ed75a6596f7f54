"""Two processes together (gloo) give the result of one."""

from pathlib import Path

import pandas as pd
import pytest
from support.forked import run_here, run_together

pytestmark = pytest.mark.slow

SCRIPT = """
import sys
from pathlib import Path
import torch
from infoflow.flow import PassOptions, measure, processes
from infoflow.heads import Confidence, Entropy, PositionalScores
from infoflow.corpus import generate_grammar, train_tokenizer
from infoflow.models import load_model
from infoflow.objectives import Vocabulary, make_objective
from infoflow.representations import IdentityNeighbours, LayerDistance, MutualInformation
from infoflow.training import ModelConfig, build_models

torch.set_num_threads(1)
corpus = generate_grammar(120)
tokenizer = train_tokenizer((sentence.text for sentence in corpus), vocab_size=120)
config = ModelConfig(width=16, layers=2, heads=2, feedforward=32, initializer_range=0.1)
module = build_models([make_objective("masked-lm")], config, Vocabulary.from_tokenizer(tokenizer))["masked-lm"]
model = load_model(module, tokenizer=tokenizer)
information = {"clusters": 8, "types": 40, "occurrences": 400}
measures = [
    MutualInformation(**information), MutualInformation(**information, regime="training"), LayerDistance(400),
    IdentityNeighbours(k=5, occurrences=400), Confidence(), Entropy(), PositionalScores(),
]
tables = measure(model, corpus, measures, PassOptions(tokens_per_batch=200))
out = Path(sys.argv[1]) / str(processes()[0])
out.mkdir(parents=True)
for name, table in tables.items():
    table.drop(columns="replicates").to_parquet(out / f"{name}.parquet")
"""


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    run_here(script, tmp_path / "one")
    run_together(script, tmp_path / "two")
    names = {path.name for path in (tmp_path / "one" / "0").glob("*.parquet")}
    assert len(names) == 6
    for name in names:
        alone = pd.read_parquet(tmp_path / "one" / "0" / name)
        for rank in ("0", "1"):
            together = pd.read_parquet(tmp_path / "two" / rank / name)
            pd.testing.assert_frame_equal(alone, together, rtol=1e-9, atol=1e-12)
