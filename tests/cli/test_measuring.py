"""`analyze`, `compare`, `heads` and `merge`."""

import json

import pandas as pd
import pytest

pytestmark = pytest.mark.slow


def tables(folder):
    return {path.stem: pd.read_parquet(path) for path in sorted((folder / "tables").glob("*.parquet"))}


def test_analyze_measures_a_model_and_its_untrained_control(infoflow, masked_lm, small, tmp_path):
    names = ("mutual_information", "layer_distance", "identity_neighbours", "head_confidence")
    answer = infoflow("analyze", masked_lm, *small, f"--only={','.join(names)}")
    assert answer.code == 0, answer.err
    run = tmp_path / "runs" / "analyze-masked-lm-seed-0"
    assert answer.out.splitlines()[-1] == "Report: runs/analyze-masked-lm-seed-0/report.html"
    found = tables(run)
    assert set(found) == {*names}
    assert set(found["head_confidence"]["trained"]) == {True, False}
    assert "Analysis: 100 %" in answer.err
    assert "Analysis: " not in answer.out


def test_analyze_writes_a_report(infoflow, masked_lm, tmp_path):
    answer = infoflow("analyze", masked_lm, "--corpus=grammar:200", "--only=head_confidence", "--out=o", "--log=plain")
    assert answer.code == 0, answer.err
    assert (tmp_path / "o" / "report.html").read_text().startswith("<!")


def test_analyze_only_some_tables_without_control(infoflow, masked_lm, small, tmp_path):
    answer = infoflow("analyze", masked_lm, *small, "--only=head_entropy,head_confidence", "--no-control", "--out=o")
    assert answer.code == 0, answer.err
    found = tables(tmp_path / "o")
    assert set(found) == {"head_entropy", "head_confidence"}
    assert set(found["head_entropy"]["trained"]) == {True}


def test_analyze_takes_measures_of_ones_own_from_a_file(infoflow, masked_lm, small, tmp_path):
    text = "import infoflow\nnorm = infoflow.measure_of(lambda states: states.norm(dim=-1), name='{}')\n"
    (tmp_path / "mine.py").write_text(text.format("state_norm"))
    options = [*small, "--only=head_entropy", "--no-control", "--out=o"]
    answer = infoflow("analyze", masked_lm, *options, "--measures=mine.py")
    assert answer.code == 0, answer.err
    assert set(tables(tmp_path / "o")) == {"head_entropy", "state_norm"}
    assert "Mean of state_norm over tokens" in answer.out
    for written, message in [("x = 1", "contains no measure"), ("import sys; sys.exit(0)", "line 1: SystemExit: 0")]:
        (tmp_path / "mine.py").write_text(written)
        answer = infoflow("analyze", masked_lm, *options, "--measures=mine.py")
        assert (answer.code, answer.out) == (2, "")
        assert message in answer.err
    assert "There is no file none.py" in infoflow("analyze", masked_lm, *options, "--measures=none.py").err


def test_paragraphs_are_split_into_sentences(infoflow, masked_lm, tmp_path):
    text = "The cat that sees {n} dogs sleeps in the old house. It has {n} kittens, and all of them sleep too."
    (tmp_path / "text.txt").write_text("\n".join(text.format(n=n) for n in range(2, 40)))
    counts = []
    for lines in ("sentences", "paragraphs"):
        options = ["--corpus=text.txt", "--only=head_entropy", "--no-control", f"--lines={lines}", f"--out={lines}"]
        answer = infoflow("analyze", masked_lm, *options, "--log=plain")
        assert answer.code == 0, answer.err
        counts.append(json.loads((tmp_path / lines / "run.json").read_text())["corpus"]["sentences"])
    assert counts == [38, 76]
    refused = infoflow("analyze", masked_lm, "--chat", "--corpus=text.txt", "--lines=paragraphs")
    assert "so --lines does not apply" in refused.err


def test_json_progress_is_one_event_a_line(infoflow, masked_lm, small):
    small = [option for option in small if option != "--log=plain"]
    answer = infoflow("analyze", masked_lm, *small, "--only=head_entropy", "--no-control", "--log=json")
    events = [json.loads(line) for line in answer.err.splitlines()]
    assert "progress" in {event["event"] for event in events}


def test_shards_merge_to_the_whole(infoflow, masked_lm, small, tmp_path):
    options = [*small, "--no-control", "--only=head_confidence,mutual_information"]
    assert infoflow("analyze", masked_lm, *options, "--out=whole").code == 0
    for shard in ("0/2", "1/2"):
        answer = infoflow("analyze", masked_lm, *options, f"--shard={shard}")
        assert answer.code == 0, answer.err
        assert answer.out.startswith(f"Shard {shard[0]} of 2: runs/")
    folders = [f"runs/analyze-masked-lm-seed-0-shard-{index}-of-2" for index in range(2)]
    assert infoflow("merge", *folders, "--out=merged").code == 0
    whole, merged = tables(tmp_path / "whole"), tables(tmp_path / "merged")
    assert whole.keys() == merged.keys()
    for name, frame in whole.items():
        pd.testing.assert_frame_equal(frame, merged[name], rtol=1e-6)


def test_merge_names_the_missing_shard(infoflow, masked_lm, small):
    options = [*small, "--no-control", "--only=head_confidence"]
    assert infoflow("analyze", masked_lm, *options, "--shard=1/2", "--out=second").code == 0
    answer = infoflow("merge", "second", "--out=merged")
    assert answer.code == 2
    assert "shards 0..1" in answer.err


def test_compare_measures_the_distance_of_models(infoflow, masked_lm, causal_lm, small, tmp_path):
    answer = infoflow(
        "compare",
        masked_lm,
        causal_lm,
        *small,
        "--no-control",
        '--set=analysis.tables=["head_confidence", "model_distance"]',
        *("--name", "fills in", "--name", "predicts"),
    )
    assert answer.code == 0, answer.err
    run = tmp_path / "runs" / "compare-fills_in-predicts"
    distances = tables(run)["model_distance"]
    assert len(distances) == 3  # embeddings and two layers
    assert set(distances["model_a"]) == {"fills in"}
    assert set(distances["model_b"]) == {"predicts"}
    assert "model_distance" in answer.out


def blocks_of(answer):
    """The printed tables by title: the lines from the head on, below what is the same in all rows."""
    blocks = [block.splitlines() for block in answer.out.split("\n\n")]
    heads = [next((n for n, line in enumerate(block, 1) if "95% intervals" in line), 1) for block in blocks]
    return {block[0].split(" (")[0]: block[head:] for block, head in zip(blocks, heads, strict=True)}


def test_heads_lists_roles_and_the_strongest_heads(infoflow, masked_lm, small, tmp_path):
    answer = infoflow("heads", masked_lm, *small, "--top=2", "--out=run")
    assert answer.code == 0, answer.err
    blocks = blocks_of(answer)
    assert list(blocks)[:5] == ["Roles held", "Best heads of each role", "Previous token", "Next token", "Confidence"]
    for title in ("Previous token", "Next token", "Confidence"):
        place = blocks[title][0].split().index("value")
        values = [float(line.split()[place]) for line in blocks[title][1:]]
        assert len(values) == 2
        assert values == sorted(values, reverse=True)
    best = blocks["Best heads of each role"]
    assert any("det dependent→head" in line for line in best)
    assert any(line.startswith("induction") for line in best)
    roles = tables(tmp_path / "run")["head_roles"]
    assert len(blocks["Roles held"]) - 1 == roles["holds"].sum()
    assert {"head_surface", "head_relations", "head_rare_token", "head_patterns"} <= set(tables(tmp_path / "run"))


def test_heads_without_trees_says_what_to_do(infoflow, masked_lm, small, tmp_path):
    (tmp_path / "plain.txt").write_text("a dog sleeps .\nthe man sees a tree .\n" * 3)
    answer = infoflow("heads", masked_lm, "--corpus=plain.txt", *small[1:], "--no-control")
    assert answer.code == 0, answer.err
    assert "use a .conllu file, grammar, or --parse" in answer.out


def test_parsing_names_the_extra(infoflow, masked_lm, small, monkeypatch):
    monkeypatch.setattr("infoflow.corpus._parse.find_spec", lambda name: None)
    answer = infoflow("heads", masked_lm, *small, "--parse")
    assert answer.code == 2
    assert 'install "spacy>=' in answer.err


def test_heads_that_see_no_later_token_have_no_next_token_score(infoflow, causal_lm, small):
    answer = infoflow("heads", causal_lm, *small)
    assert "Next token (share of queries): none." in answer.out
