"""What `infoflow doctor MODEL` says before anything begins: counts are exact, weights are not read."""

import json

import torch
from support.tiny_heads import bert, trees

from infoflow.cli import run
from infoflow.foundation import make_display, use_display
from infoflow.studies import AnalysisPlan, AnalyzeOptions, estimated

CORPUS = trees(40)


def test_counts_are_those_of_the_loaded_model_and_no_weights_are_read(tmp_path, capsys) -> None:
    model = bert(CORPUS, layers=3)
    model.module.save_pretrained(tmp_path / "model")
    model.require_tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").unlink()
    text = tmp_path / "text.txt"
    text.write_text("\n".join(sentence.text for sentence in CORPUS) + "\n", encoding="utf-8")
    options = AnalyzeOptions(corpus=str(text), control=False)
    with use_display(make_display("silent")):
        counts, weights, found = estimated(str(tmp_path / "model"), options)
        halved = estimated(str(tmp_path / "model"), AnalyzeOptions(corpus=str(text), dtype="bfloat16"))[1]
    lengths = [len(ids) for ids in model.require_tokenizer()(sorted({one.text for one in CORPUS}))["input_ids"]]
    assert (counts.tokens, counts.squares) == (sum(lengths), sum(size**2 for size in lengths))
    assert (counts.layers, counts.heads, counts.width, counts.predicts) == (3, 3, 36, "masked-lm")
    assert weights == 4 * sum(one.numel() for one in model.module.parameters()) == 2 * halved
    assert counts.linear == sum(
        one.weight.numel() for one in model.module.modules() if isinstance(one, torch.nn.Linear)
    )
    few = AnalyzeOptions(corpus=str(text), measures=AnalysisPlan(frequency_occurrences=359))
    with use_display(make_display("silent")):
        of_few = estimated(str(tmp_path / "model"), few)[2]
    left_out = {one.table for one in found} - {one.table for one in of_few}
    assert left_out == {"change_by_frequency", "influence_by_frequency"}  # width 36 needs 360, as in the analysis
    by_table = {one.table: one for one in found}
    assert {"lens", "head_ablation", "head_confidence", "mutual_information"} <= set(by_table)
    assert by_table["head_ablation"].passes > by_table["head_importance"].passes > 0 == by_table["geometry"].passes
    assert all(one.seconds > 0 and one.bytes > 0 for one in found)

    assert run(["doctor", str(tmp_path / "model"), "--corpus", str(text), "--only", "head_entropy,lens"]) == 0
    shown = capsys.readouterr().out
    assert "head_entropy" in shown
    assert "GFLOP/s in layers of width 36" in shown
    assert "head_ablation" not in shown
    assert run(["doctor", "--corpus", str(text)]) == 2
    assert "need a model to estimate: infoflow doctor MODEL" in capsys.readouterr().err


def test_long_texts_are_counted_only_where_measures_read_them(tmp_path, capsys) -> None:
    model = bert(CORPUS)
    model.module.save_pretrained(tmp_path / "model")
    tokenizer = model.require_tokenizer()
    tokenizer.model_max_length = 9000
    tokenizer.save_pretrained(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"max_position_embeddings": 9000}))
    words = " ".join(sentence.text for sentence in CORPUS)
    text = tmp_path / "text.txt"
    text.write_text(f"{words}\n{' '.join([words] * 20)}\n", encoding="utf-8")
    options = AnalyzeOptions(corpus=str(text), control=False, max_length=8000)
    with use_display(make_display("silent")):
        counts, _, found = estimated(str(tmp_path / "model"), options)
        tight = AnalyzeOptions(
            corpus=str(text), control=False, max_length=8000, measures=AnalysisPlan(attention_bytes=10**6)
        )
        of_tight = {one.table: one for one in estimated(str(tmp_path / "model"), tight)[2]}
    by_table = {one.table: one for one in found}
    assert counts.longest == 8000
    assert (
        by_table["head_ablation"].texts == 1
    )  # more than 4,096 tokens are too many for what runs the model many times
    assert by_table["head_confidence"].texts == of_tight["head_confidence"].texts == 2
    assert of_tight["head_relevance"].texts == of_tight["head_distance"].texts == 0
    assert by_table["head_relevance"].passes == 2 * 64  # forwards and backwards, for each prediction that is explained
    assert run(["doctor", str(tmp_path / "model"), "--corpus", str(text), "--max-length", "8000"]) == 0
    assert "1 of 2 texts are too long for " in capsys.readouterr().out
