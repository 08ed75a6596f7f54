"""Conversations by real chat templates: the model's own tokens, and the exact role of each."""

import gzip
import json

import pytest
from support.chat_tokenizers import CHATML, GEMMA, GENERATION, LLAMA2, LLAMA3, chat_tokenizer

from infoflow.corpus import load_chat
from infoflow.foundation import UserError

SYSTEM = {"role": "system", "content": "\n Be brief.\n"}
ASKED = [
    {"role": "user", "content": " What is the\n\ncapital of  France? user\n"},
    {"role": "assistant", "content": "\nParis <|im_end|> 巴黎.\n\n"},
    {"role": "user", "content": "user\n"},
    {"role": "assistant", "content": ""},
]


def chatml(messages, mark=False):
    """The text by role, written down without the template."""
    pieces = []
    for one in messages:
        end = one["role"] if mark and one["role"] == "assistant" else "template"
        pieces += [(f"<|im_start|>{one['role']}\n", "template"), (one["content"], one["role"])]
        pieces += [("<|im_end|>", end), ("\n", "template")]
    return pieces


def trimmed(messages, start, end, names=()):
    pieces = [("<s>", "template")]
    for one in messages:
        role = dict(names).get(one["role"], one["role"])
        pieces += [(start.format(role), "template"), (one["content"].strip(), one["role"]), (end, "template")]
    return pieces


def llama2(messages):
    system, user, assistant, second, last = (one["content"] for one in messages)
    return [
        *(("<s>[INST] <<SYS>>\n", "template"), (system, "system"), ("\n<</SYS>>\n\n", "template")),
        *((user.strip(), "user"), (" [/INST] ", "template"), (assistant.strip(), "assistant")),
        *((" </s>[INST] ", "template"), (second.strip(), "user"), (" [/INST] ", "template"), (last, "assistant")),
        (" </s>", "template"),
    ]


STYLES = {
    "ChatML": (CHATML, [SYSTEM, *ASKED], chatml),
    "default system prompt": (
        CHATML,
        ASKED,
        lambda messages: [
            ("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n", "template"),
            *chatml(messages),
        ],
    ),
    "generation": (GENERATION, [SYSTEM, *ASKED], lambda messages: chatml(messages, mark=True)),
    "Llama 3": (
        LLAMA3,
        [SYSTEM, *ASKED],
        lambda messages: trimmed(messages, "<|start_header_id|>{}<|end_header_id|>\n\n", "<|eot_id|>"),
    ),
    "Gemma": (
        GEMMA,
        ASKED,
        lambda messages: trimmed(messages, "<start_of_turn>{}\n", "<end_of_turn>\n", [("assistant", "model")]),
    ),
    "Llama 2": (LLAMA2, [SYSTEM, *ASKED], llama2),
}


def saved(path, *conversations):
    path.write_text("".join(json.dumps({"messages": one}) + "\n" for one in conversations), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("style", STYLES)
def test_tokens_are_those_of_the_template_and_each_has_its_role(style, tmp_path):
    template, messages, written = STYLES[style]
    tokenizer = chat_tokenizer(template)
    corpus = load_chat(saved(tmp_path / "chats.jsonl", messages), tokenizer)
    pieces = written(messages)
    text = "".join(piece for piece, _ in pieces)
    roles = [role for piece, role in pieces for _ in piece]
    (row,) = corpus
    assert row.text == text == tokenizer.apply_chat_template(messages, tokenize=False)
    encoded = corpus.encode(tokenizer)
    whole = tokenizer.apply_chat_template(messages, return_dict=True)
    assert encoded.row(0).tolist() == whole["input_ids"]
    offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    for (start, end), word, special in zip(offsets, encoded.words(0), encoded.special(0), strict=True):
        assert special == (text[start:end] in tokenizer.all_special_tokens)
        seen = start + len(text[start:end]) - len(text[start:end].lstrip()) if text[start:end].strip() else start
        assert special or row.tags["role"][word] == roles[seen], (text[start:end], start)
    for start, word, role in zip(row.word_starts, row.words, row.tags["role"], strict=True):
        assert set(roles[start : start + len(word)]) == {role}


def test_every_usual_form_gives_the_same_conversations(tmp_path):
    tokenizer = chat_tokenizer(CHATML)
    plain = [[SYSTEM, *ASKED[:2]], ASKED[2:3]]
    names = {"user": "human", "assistant": "gpt"}
    shared = [
        {"conversations": [{"from": names.get(m["role"], m["role"]), "value": m["content"]} for m in one]}
        for one in plain
    ]
    parts = [[{**m, "content": [{"type": "text", "text": m["content"]}]} for m in one] for one in plain]
    first = load_chat(saved(tmp_path / "chats.jsonl", *plain), tokenizer)
    for name, content in {"a.json": plain, "b.json": shared, "c.json": parts}.items():
        (tmp_path / name).write_text(json.dumps(content))
        assert load_chat(str(tmp_path / name), tokenizer).digest == first.digest
    with gzip.open(tmp_path / "d.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(one) + "\n" for one in plain)
    assert load_chat(str(tmp_path / "d.jsonl.gz"), tokenizer).digest == first.digest
    (tmp_path / "one.json").write_text(json.dumps(plain[0]))
    assert len(load_chat(str(tmp_path / "one.json"), tokenizer)) == 1


@pytest.mark.parametrize(
    ("template", "messages", "message"),
    [
        (None, ASKED, "has no chat template"),
        (GEMMA, [SYSTEM, *ASKED], "conversation 1: .* refuses it: System role not supported"),
        (CHATML.replace("message['content']", "message['content'] | upper"), ASKED, "leaves out, repeats or rewrites"),
        (CHATML.replace("message['content']", "message['content'][:3]"), ASKED, "leaves out, repeats or rewrites"),
        (CHATML, [{"role": "user", "content": 3}], "content of a message must be text. Got 3"),
        (CHATML, [{"role": "", "content": "a"}], "a role must be a word"),
        (CHATML, [], "expected a list of messages"),
        (CHATML, [{"text": "a"}], "expected a list of messages"),
    ],
)
def test_conversations_that_cannot_be_read_are_refused_by_name(template, messages, message, tmp_path):
    with pytest.raises(UserError, match=message):
        load_chat(saved(tmp_path / "chats.jsonl", messages), chat_tokenizer(template))


@pytest.mark.parametrize("source", ["tatoeba-en-fr", "gone.jsonl", "chats.txt"])
def test_other_corpora_are_no_conversations(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chats.txt").write_text("Hello.\n")
    with pytest.raises(UserError, match="--chat reads conversations from a"):
        load_chat(source, chat_tokenizer(CHATML))


def test_another_models_tokenizer_does_not_read_them(tmp_path):
    corpus = load_chat(saved(tmp_path / "chats.jsonl", ASKED), chat_tokenizer(CHATML))
    part = corpus.select([0])
    assert part.encode(chat_tokenizer(CHATML)).num_tokens
    with pytest.raises(UserError, match="by the chat template of another model"):
        part.encode(chat_tokenizer(LLAMA3))
