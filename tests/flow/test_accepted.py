"""What `measure` and `compare` take in place of loaded things."""

import inspect

import numpy as np
import pytest

import infoflow
from infoflow import UserError
from infoflow.flow import accepted_corpus, accepted_model, compare


def test_a_folder_a_list_and_one_measure_are_taken(matched_models, tmp_path):
    model, texts = matched_models["masked-lm"], ["the cat sees the dog", "a red house", "the old dog sleeps"]
    model.module.save_pretrained(tmp_path)
    model.tokenizer.save_pretrained(tmp_path)
    one = infoflow.heads.Confidence()
    given = infoflow.measure(str(tmp_path), texts, one)["head_confidence"]
    loaded = infoflow.measure(model, infoflow.load_corpus(texts), [one])["head_confidence"]
    np.testing.assert_allclose(given["value"], loaded["value"], rtol=1e-5)


def test_models_that_are_no_list_are_told_of(matched_models, parallel_corpus):
    model = matched_models["masked-lm"]
    with pytest.raises(UserError, match=r"compare takes a list of models first.*Got one model"):
        inspect.unwrap(compare)(model, parallel_corpus, [])  # in tests beartype would speak first
    with pytest.raises(UserError, match="Got a second model"):
        accepted_corpus(model)
    with pytest.raises(UserError, match="A model is a name, a folder"):
        accepted_model(3)
    assert accepted_corpus(parallel_corpus) is parallel_corpus
