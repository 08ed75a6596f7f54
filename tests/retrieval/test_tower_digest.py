"""An index is of one encoder: its weights, its settings, how it pools and whose tokens it reads."""

import json

import pytest
import torch
from retrieval.tiny_arms import tiny_reader, tiny_world

from infoflow.foundation import UserError
from infoflow.retrieval import (
    DenseIndex,
    Passages,
    Retriever,
    build_retriever,
    load_index,
    retriever_config,
    save_index,
    tower_digest,
)


def tower(**changes):
    return build_retriever(retriever_config(tiny_reader().config, vector_width=8, **changes), seed=1).passages


def other_tokenizer():
    """The same words with two ids changed places."""
    tokenizer = tiny_world()[0].tokenizer()
    written = json.loads(tokenizer.backend_tokenizer.to_str())
    words = sorted(written["model"]["vocab"], key=written["model"]["vocab"].__getitem__)[-2:]
    vocabulary = written["model"]["vocab"]
    vocabulary[words[0]], vocabulary[words[1]] = vocabulary[words[1]], vocabulary[words[0]]
    tokenizer._tokenizer = tokenizer.backend_tokenizer.from_str(json.dumps(written))
    return tokenizer


def test_all_that_makes_a_vector_is_in_the_digest(tmp_path):
    tokenizer = tiny_world()[1]
    plain = tower()
    digests = {
        "as it is": tower_digest(plain, tokenizer),
        "pooling": tower_digest(tower(pooling="first"), tokenizer),
        "heads": tower_digest(tower(num_attention_heads=1), tokenizer),
        "activation": tower_digest(tower(hidden_act="silu"), tokenizer),
        "tokenizer": tower_digest(plain, other_tokenizer()),
    }
    assert torch.equal(tower(pooling="first").projection.weight, plain.projection.weight)  # the weights do not tell
    with torch.no_grad():
        changed = tower()
        changed.norm.bias[0] += 1e-3
    digests["weights"] = tower_digest(changed, tokenizer)
    assert len(set(digests.values())) == len(digests)
    retriever = build_retriever(retriever_config(tiny_reader().config, vector_width=8), seed=1)
    retriever.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    again = Retriever.from_pretrained(tmp_path)
    assert tower_digest(again.passages, type(tokenizer).from_pretrained(tmp_path)) == digests["as it is"]


@pytest.mark.parametrize("changes", [{"pooling": "first"}, {"hidden_act": "silu"}])
def test_an_index_of_another_pooling_is_refused(tmp_path, changes):
    tokenizer, passages = tiny_world()[1], Passages.from_rows(["one", "two"])
    save_index(DenseIndex(torch.eye(2)), passages, tower_digest(tower(), tokenizer), tmp_path / "i")
    with pytest.raises(UserError, match=r"pooling.*\n.*infoflow data index"):
        load_index(tmp_path / "i", passages, tower_digest(tower(**changes), tokenizer))


def test_a_dense_index_of_an_older_version_is_refused(tmp_path):
    passages = Passages.from_rows(["one", "two"])
    save_index(DenseIndex(torch.eye(2)), passages, "e", tmp_path / "i")
    path = tmp_path / "i" / "index.json"
    written = json.loads(path.read_text())
    for version in (1, 99):
        path.write_text(json.dumps(written | {"version": version}))
        with pytest.raises(UserError, match=rf"another version of infoflow, in layout {version}(.|\n)*Build the index"):
            load_index(tmp_path / "i", passages, "e")
