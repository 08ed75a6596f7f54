"""`--chat` and `--where`: conversations through the chat template of a model."""

import json
from itertools import pairwise

import pandas as pd
import pytest
from support.chat_tokenizers import CHATML, LLAMA3, chat_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

NAMES = ["Paris", "Rome", "Bonn", "Oslo", "Bern", "Riga", "Kyiv", "Lima"]
SMALL = ["--no-control", "--log=plain", "--set=analysis.occurrences=200", "--set=analysis.types=5"]


@pytest.fixture
def chats(tmp_path):
    """Thirteen conversations."""
    lines = [
        {"messages": [{"role": "user", "content": f"Where is {a}?"}, {"role": "assistant", "content": f"Near {b}."}]}
        for a, b in [*pairwise(NAMES), *zip(NAMES, NAMES[2:], strict=False)]
    ]
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return "--corpus=chats.jsonl"


def saved(folder, template):
    tokenizer = chat_tokenizer(template)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_tables_of_conversations_and_of_the_tokens_of_one_role(infoflow, no_drawing, chats, tmp_path):
    model = saved(tmp_path / "model", CHATML)
    only = "--only=head_entropy,head_patterns"
    answer = infoflow("analyze", model, "--chat", chats, only, *SMALL, "--out=all")
    assert answer.code == 0, answer.err
    counts = [pd.read_parquet(tmp_path / "all/tables/head_entropy.parquet")["count"].iloc[0]]
    for role in ("user", "assistant", "template"):
        answer = infoflow("analyze", model, "--chat", chats, only, *SMALL, f"--where=role={role}", f"--out={role}")
        assert answer.code == 0, answer.err
        assert "leaves out tables that do not count tokens one by one: head_patterns" in answer.err
        counts.append(pd.read_parquet(tmp_path / role / "tables/head_entropy.parquet")["count"].iloc[0])
    assert counts[0] == sum(counts[1:])
    assert json.loads((tmp_path / "user/run.json").read_text())["title"].endswith("(role=user)")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--corpus=grammar:50"], "--chat reads conversations from a"),
        (["--text-column=text"], "so --text-column does not apply"),
        (["--where=role"], "--where must be TAG=VALUE"),
        (["--where=role=robot"], "No word of chats.jsonl has role=robot. Values of role: assistant, template, user"),
        (["--where=role=user", "--only=head_patterns"], "--where applies to tables that count tokens one by one"),
    ],
)
def test_what_does_not_fit_is_refused(infoflow, chats, tmp_path, options, message):
    options = [*([] if any(one.startswith("--corpus") for one in options) else [chats]), *options]
    options += [] if any(one.startswith("--only") for one in options) else ["--only=head_entropy"]
    answer = infoflow("analyze", saved(tmp_path / "model", CHATML), "--chat", *options, *SMALL, "--out=o")
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err
    assert not (tmp_path / "o" / "tables").exists()


def test_models_with_other_templates_are_not_compared_on_conversations(infoflow, chats, tmp_path):
    models = [saved(tmp_path / name, template) for name, template in (("a", CHATML), ("b", LLAMA3))]
    answer = infoflow("compare", *models, "--chat", chats, *SMALL, "--out=o")
    assert answer.code == 2
    assert "only if they have the same chat template" in answer.err
