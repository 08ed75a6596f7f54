from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from adaptation.writing import KINDS, both_sides, pairs, writer
from transformers import (
    AutoModelForSeq2SeqLM,
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from infoflow.adaptation import AllocationHooks, Generation, Predictions, TaskData, TuneConfig
from infoflow.corpus import Corpus, Vocabulary
from infoflow.foundation import UserError
from infoflow.models import load_model
from infoflow.objectives import Noise, prefix_mask
from infoflow.training import TrainConfig, TrainingData, train

CORPUS = pairs()
TOKENIZER = both_sides(CORPUS)
VOCABULARY = Vocabulary.from_tokenizer(TOKENIZER)
TASK = Generation(task="words", max_target=9)
CLS, SEP = TOKENIZER.cls_token_id, TOKENIZER.sep_token_id
WAYS = [(kind, two_sided) for kind in KINDS for two_sided in (False, True) if "encoder" not in kind or not two_sided]


@pytest.fixture(scope="module")
def models():
    return {kind: writer(kind, TOKENIZER) for kind in KINDS}


def _rows(corpus=CORPUS, task=TASK, max_length=32):
    return task.rows(corpus, TOKENIZER, max_length)


def _batch(rows, indices, task=TASK):
    return TrainingData(source=rows, vocabulary=VOCABULARY).batch(task, np.asarray(indices), ("test",), 0)


def _log_p(module, source: list[int], target: list[int], two_sided: bool) -> torch.Tensor:
    """log p of each token of a target that begins with [CLS], one example alone, no cache: (token, vocabulary)."""
    with torch.no_grad():
        if module.config.is_encoder_decoder:
            logits = module(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([target])).logits[0]
        else:
            ids = torch.tensor([[*source, *target[1:]]])
            mask = prefix_mask(torch.tensor([len(source)]), ids.shape[1]) if two_sided else None
            logits = module(input_ids=ids, attention_mask=mask, use_cache=False).logits[0, len(source) - 1 :]
    return logits.float().log_softmax(-1)


@pytest.mark.parametrize("begin_is_read", [True, False])
@pytest.mark.parametrize(("kind", "two_sided"), WAYS)
def test_losses_are_those_of_each_example_alone(models, kind, two_sided, begin_is_read):
    task = replace(TASK, two_sided=two_sided, begin_is_read=begin_is_read)
    rows = _rows(task=task)
    indices = [0, 3, 5, 7]
    batch = _batch(rows, indices, task)
    losses = task.example_losses(models[kind], batch)
    for place, row in enumerate(indices):
        example = rows.example(row)
        target = example.translation.tolist()
        assert target[0] == CLS
        assert target[-1] == SEP
        log_p = _log_p(models[kind], example.text.tolist(), target[:-1], two_sided)
        expected = -log_p[range(len(target) - 1), target[1:]].sum()
        torch.testing.assert_close(losses[place].detach(), expected, atol=1e-4, rtol=1e-4)
    term = task.loss(models[kind], batch, Noise())["generation"]
    torch.testing.assert_close(term.total, losses.sum())
    assert task.counts(batch) == {"generation": term.count}
    targets = [len(rows.example(row).translation) for row in indices]
    assert term.count == sum(targets) - begin_is_read * len(indices)


@pytest.mark.parametrize("kind", KINDS)
def test_label_smoothing_is_that_of_torch(models, kind):
    batch = _batch(_rows(), [0, 1, 2])
    smooth = TASK.loss(models[kind], batch, Noise(), 0.2)["generation"].total.item()
    uniform = 0.0
    rows = _rows()
    for row in (0, 1, 2):
        target = rows.example(row).translation.tolist()
        log_p = _log_p(models[kind], rows.source(row).tolist(), target[:-1], two_sided=False)
        uniform -= log_p.mean(-1).sum().item()
    plain = TASK.example_losses(models[kind], batch).sum().item()
    assert smooth == pytest.approx(0.8 * plain + 0.2 * uniform, rel=1e-4)


@pytest.mark.parametrize("batch_tokens", [1, 4000])
@pytest.mark.parametrize(("kind", "two_sided"), WAYS)
def test_greedy_texts_are_those_of_a_loop_without_cache(models, kind, two_sided, batch_tokens):
    task = replace(TASK, two_sided=two_sided)
    corpus = CORPUS.select(range(5))
    rows = _rows(corpus, task)
    found = task.predict(models[kind], rows, corpus, VOCABULARY, batch_tokens)
    for row, (said, value) in enumerate(zip(found.said, found.values, strict=True)):
        target, chances = [CLS], []
        while len(target) <= task.max_target and target[-1] != SEP:
            log_p = _log_p(models[kind], rows.source(row).tolist(), target, two_sided)[-1]
            target.append(int(log_p.argmax()))
            chances.append(float(log_p.max()))
        assert said == TOKENIZER.decode(target, skip_special_tokens=True).strip()
        assert value == pytest.approx(np.exp(np.mean(chances)), rel=1e-3)


@pytest.mark.parametrize(("kind", "two_sided"), WAYS)
def test_beams_as_many_as_tokens_find_the_most_probable_text(models, kind, two_sided):
    """Of texts of at most two tokens, their end included."""
    task = replace(TASK, two_sided=two_sided, beams=len(TOKENIZER), max_target=2, length_penalty=0.0)
    corpus = CORPUS.select([1])
    rows = _rows(corpus, task)
    found = task.predict(models[kind], rows, corpus, VOCABULARY, 100)
    source = rows.source(0).tolist()
    first = _log_p(models[kind], source, [CLS], two_sided)[-1]
    best = (float(first[SEP]), [SEP])
    for token in range(len(TOKENIZER)):
        if token != SEP:
            second = _log_p(models[kind], source, [CLS, token], two_sided)[-1]
            best = max(best, (float(first[token] + second.max()), [token, int(second.argmax())]))
    assert found.values[0] == pytest.approx(np.exp(best[0] / len(best[1])), rel=1e-3)
    assert found.said[0] == TOKENIZER.decode(best[1], skip_special_tokens=True).strip()


@pytest.mark.parametrize(("kind", "two_sided"), WAYS)
def test_beam_search_does_not_depend_on_batches_or_order(models, kind, two_sided):
    task = replace(TASK, two_sided=two_sided, beams=3)
    corpus = CORPUS.select(range(8))
    order = np.random.default_rng(0).permutation(len(corpus))
    mixed = corpus.select(order)
    first = task.predict(models[kind], _rows(corpus, task), corpus, VOCABULARY, 1)
    second = task.predict(models[kind], _rows(mixed, task), mixed, VOCABULARY, 4000)
    assert [first.said[row] for row in order] == list(second.said)
    np.testing.assert_allclose(first.values[order], second.values, rtol=1e-3)


def test_rows_are_prefix_source_and_target():
    rows = Generation(task="words", prefix="red ").rows(CORPUS, TOKENIZER, 32)
    for index, one in enumerate(CORPUS):
        example = rows.example(index)
        assert example.text.tolist() == TOKENIZER("red " + one.text)["input_ids"]
        assert example.translation.tolist() == TOKENIZER(one.translation)["input_ids"]
        assert rows.row(index).tolist() == [*example.text, *example.translation]
        assert rows.lengths[index] == len(rows.row(index))
    assert rows.digest != _rows().digest
    assert _rows().digest == _rows().digest


def test_long_texts_are_cut_with_their_ends_kept():
    corpus = Corpus.from_sentences([("cat " * 30, "chat " * 30)])
    example = Generation(task="words", max_target=5).rows(corpus, TOKENIZER, 7).example(0)
    assert len(example.text) == 7
    assert len(example.translation) == 1 + 5  # [CLS] is read, not written
    assert example.text[-1] == example.translation[-1] == SEP


def test_text_holds_no_control_token():
    rows = _rows(Corpus.from_sentences([("cat [SEP] dog", "chat [SEP]")]))
    assert (rows.source(0) == SEP).sum() == 1
    assert (rows.example(0).translation == SEP).sum() == 1


def test_two_tokenizers(models):
    other = both_sides(pairs(30, seed=5), size=45)
    rows = TASK.rows(CORPUS, TOKENIZER, 32, target_tokenizer=other)
    assert rows.example(0).text.tolist() == TOKENIZER(CORPUS[0].text)["input_ids"]
    assert rows.example(0).translation.tolist() == other(CORPUS[0].translation)["input_ids"]
    assert rows.side.tokenizer is other


def test_texts_to_write_are_looked_at_by_the_targets_own_tokenizer(models, tmp_path):
    other = both_sides(pairs(30, seed=5), size=45)
    model = load_model(models["bert encoder-decoder"], tokenizer=TOKENIZER)
    model = replace(model, target_tokenizer=other)
    data = TaskData(name="words", shape="generation", train=CORPUS, dev=CORPUS, test=CORPUS)
    config = TuneConfig(max_length=32, max_target=9)
    hooks = AllocationHooks(model=model, data=data, task=TASK, config=config, folder=tmp_path)
    rows = hooks._training.source
    assert rows.side.tokenizer is other
    assert rows.example(0).text.tolist() == TOKENIZER(CORPUS[0].text)["input_ids"]
    assert rows.example(0).translation.tolist() == other(CORPUS[0].translation)["input_ids"]


def test_who_learns_is_asked_of_the_examples_that_are_trained_on(models, tmp_path):
    model = load_model(models["t5 encoder-decoder"], tokenizer=TOKENIZER)
    data = TaskData(name="words", shape="generation", train=CORPUS, dev=CORPUS, test=CORPUS)
    config = TuneConfig(max_length=32, max_target=9, examples=7)
    hooks = AllocationHooks(model=model, data=data, task=TASK, config=config, folder=tmp_path)
    assert len(hooks._training.source.lengths) == 7


def test_a_tokenizer_that_ends_nothing_gets_its_end_of_text():
    from tokenizers import Tokenizer, models, pre_tokenizers

    plain = Tokenizer(models.WordLevel({"<end>": 0, "<unk>": 1, "cat": 2, "chat": 3}, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="<end>", unk_token="<unk>")
    rows = TASK.rows(Corpus.from_sentences([("cat cat", "chat")]), tokenizer, 32)
    assert rows.row(0).tolist() == [2, 2, 0, 3, 0]
    assert rows.example(0).labels["target_begins"] == 0
    bare = PreTrainedTokenizerFast(tokenizer_object=plain, unk_token="<unk>")
    with pytest.raises(UserError, match="neither an end-of-text nor a separator"):
        TASK.rows(Corpus.from_sentences([("cat", "chat")]), bare, 32)


def test_what_writes_nothing_is_refused():
    config = BertConfig(vocab_size=60, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    batch = _batch(_rows(), [0])
    with pytest.raises(UserError, match="Got a BertForMaskedLM, which cannot generate text"):
        TASK.example_losses(BertForMaskedLM(config), batch)
    with pytest.raises(UserError, match=r"must not attend to later tokens\. BertLMHeadModel does"):
        TASK.example_losses(BertLMHeadModel(config), batch)


def test_a_decoder_has_room_for_both_texts(models):
    corpus = Corpus.from_sentences([("cat " * 60, "chat " * 10)])
    task = replace(TASK, max_target=12)
    with pytest.raises(UserError, match="64 positions for source and target together"):
        task.example_losses(models["gpt2 decoder"], _batch(_rows(corpus, task, 60), [0], task))


def test_a_corpus_without_texts_to_write_is_refused():
    with pytest.raises(UserError, match="has no column translation"):
        _rows(Corpus.from_sentences(["cat"]))


@pytest.mark.slow
def test_a_tiny_model_learns_to_translate(tmp_path):
    corpus = pairs(200, seed=3, most=2)
    tokenizer = both_sides(corpus)
    model = writer("bert encoder-decoder", tokenizer, spread=0.05)
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    data = TrainingData(source=TASK.rows(corpus, tokenizer, 32), vocabulary=vocabulary, tokenizer=tokenizer)
    settings = {"updates": 120, "batch_tokens": 400, "learning_rate": 5e-3, "device": "cpu", "precision": "fp32"}
    result = train(TASK, TrainConfig(**settings), data, model, tmp_path)
    test = pairs(30, seed=4, most=2)
    rows = TASK.rows(test, tokenizer, 32)
    found = TASK.predict(model.eval(), rows, test, vocabulary, 2000)
    scores = {score.metric: score.row for score in TASK.scores(found, test, corpus)}
    assert scores["exact_match"]["value"] > scores["exact_match"]["baseline"] + 0.3
    assert scores["rougeL"]["low"] > scores["rougeL"]["baseline"]
    loaded = AutoModelForSeq2SeqLM.from_pretrained(result.model).eval()
    assert TASK.predict(loaded, rows, test, vocabulary, 2000).said == found.said


def _bart():
    shape = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = BartConfig(
        vocab_size=len(TOKENIZER), d_model=16, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=64,
        pad_token_id=0, bos_token_id=CLS, eos_token_id=SEP, decoder_start_token_id=SEP, forced_eos_token_id=SEP,
        **shape,
    )  # fmt: skip
    return BartForConditionalGeneration(config).eval()


def _t5():
    config = T5Config(
        vocab_size=len(TOKENIZER), d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, pad_token_id=0,
        eos_token_id=SEP, decoder_start_token_id=0,
    )  # fmt: skip
    return T5ForConditionalGeneration(config).eval()


@pytest.mark.parametrize("build", [_bart, _t5])
def test_families_that_shift_in_their_own_way(build):
    """Their decoders start with another token than [CLS], so the whole target is asked for, as transformers has it."""
    torch.manual_seed(0)
    module = build()
    rows = _rows()
    losses = TASK.example_losses(module, _batch(rows, [0, 1, 2]))
    for place in range(3):
        example = rows.example(place)
        target = torch.tensor(example.translation)[None]
        output = module(input_ids=torch.tensor(example.text)[None], labels=target)
        torch.testing.assert_close(losses[place], output.loss * target.numel(), atol=1e-4, rtol=1e-4)
    corpus = CORPUS.select(range(4))
    first, second = (TASK.predict(module, _rows(corpus), corpus, VOCABULARY, budget) for budget in (1, 1000))
    assert first.said == second.said
    np.testing.assert_allclose(first.values, second.values, rtol=1e-4)


def test_right_texts_are_any_of_the_references():
    frame = pd.DataFrame({"text": ["a", "b", "c"], "translation": ["d", "e", "f"], "references": [["g"], [], ["h"]]})
    corpus = Corpus.from_frame(frame, translation="translation", references="references")
    predictions = Predictions(said=("G", "e ", "x"), wanted=("d", "e", "f"), values=np.ones(3))
    assert TASK.right(predictions, corpus).tolist() == [True, True, False]
