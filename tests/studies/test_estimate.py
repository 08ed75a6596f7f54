"""What `infoflow doctor MODEL` says before anything begins: counts are exact, weights are not read."""

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
