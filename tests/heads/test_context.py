"""Closed losses against one sentence and one set of blocks at a time, with attention written out by hand."""

# T token, H head, d head width

import copy
from collections import Counter
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from infoflow.corpus import Corpus, train_tokenizer
from infoflow.flow import NO_LABEL, PassOptions, Reader, measure
from infoflow.foundation import NUM_BLOCKS, UserError, block_of
from infoflow.heads import (
    EncoderContext,
    SentenceScorer,
    closed_attention,
    closings_of,
    context_bleu,
    context_rows,
    context_scores,
    self_attention_blocks,
)
from infoflow.models import bleu_statistics, load_model, model_inputs, translate
from infoflow.objectives import Vocabulary, make_objective
from infoflow.training import ModelConfig, build_models

TASKS = ("causal-lm", "masked-lm", "translation")
KEYS = ["kind", "which", "number"]
SMALL = PassOptions(tokens_per_batch=120)


@pytest.fixture(scope="module", params=TASKS)
def model(request, matched_models):
    return matched_models[request.param]


@pytest.fixture(scope="module")
def corpus(parallel_corpus):
    return parallel_corpus.select(range(16))


def reader_of(model, corpus, **options):
    return Reader(model, corpus, max_length=512, seed=0, decoder=model.task == "seq2seq", **options)


def table_of(model, corpus, budget=120, sentences=None):
    options = PassOptions(tokens_per_batch=budget)
    return measure(model, corpus, [EncoderContext(sentences)], options)["encoder_context"]


@contextmanager
def by_hand(model, blocks):
    """Each closed attention hands on, position by position and head by head, the value of that very position."""
    with ExitStack() as stack:
        for one in model.anatomy.attentions():
            if one.kind != "self" or (one.stack, one.layer) not in blocks:
                continue
            module = model.module.get_submodule(one.module)

            def own_values(module, args, kwargs, output, one=one):
                states = args[0] if args else kwargs["hidden_states"]
                context = torch.zeros_like(output[0])
                for sentence in range(states.shape[0]):
                    for position in range(states.shape[1]):
                        for head in range(one.num_heads):
                            rows = slice(head * one.head_dim, (head + 1) * one.head_dim)
                            weight, bias = module.value.weight[rows], module.value.bias[rows]
                            context[sentence, position, rows] = weight @ states[sentence, position] + bias
                return (context, *output[1:])

            stack.callback(module.register_forward_hook(own_values, with_kwargs=True).remove)
        yield


def slow_loss(scorer, row, blocks):
    """Summed loss of one sentence, run whole and alone by Hugging Face's own code."""
    batch, model = scorer.batch(np.array([row])), scorer.model
    streams = batch.padded.streams
    decoder = streams["decoder"].input_ids if model.task == "seq2seq" else None
    inputs = model_inputs(model, streams[scorer.reader.source_stack].input_ids, decoder_input_ids=decoder)
    with torch.no_grad(), by_hand(model, blocks):
        logits = model.module(**inputs).logits.double()
    return torch.nn.functional.cross_entropy(
        logits[0], batch.labels[0], ignore_index=NO_LABEL, reduction="sum"
    ).item()  # fmt: skip


def losses_of(reader, closings):
    """Summed losses in each bootstrap block: open, under each closing, and of frequencies alone."""
    return context_scores(reader, closings, None, SMALL).sums_VKS[:, :, 0]


def test_fast_losses_agree_with_attention_by_hand(model, corpus):
    scorer = SentenceScorer(reader_of(model, corpus))
    rows = np.sort(np.concatenate([batch.padded.rows for batch in scorer.batches(np.arange(16), 10_000)]))[:4]
    few = corpus.select(rows)
    closings = [closing for kind in self_attention_blocks(model) for closing in closings_of(model, kind)]
    found = losses_of(reader_of(model, few), closings)[:-1]
    expected = np.zeros((1 + len(closings), NUM_BLOCKS))
    for row, block in zip(rows.tolist(), block_of(few.content_ids), strict=True):
        expected[:, block] += [slow_loss(scorer, row, blocks) for blocks in [(), *(one.blocks for one in closings)]]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(found[1:] - found[0]).max() > 1e-3


def test_all_closed_is_a_diagonal_mask(matched_models, corpus):
    """The whole masked LM behind a 4-D mask that lets each position see itself alone."""
    model = matched_models["masked-lm"]
    scorer = SentenceScorer(reader_of(model, corpus))
    batch = next(scorer.batches(np.arange(16), 10_000))
    ids = batch.padded.streams["encoder"].input_ids
    diagonal = torch.eye(ids.shape[1], dtype=torch.bool).expand(len(ids), 1, -1, -1)
    with torch.no_grad():
        logits = model.module(ids, attention_mask=diagonal).logits
    losses = torch.nn.functional.cross_entropy(logits.mT, batch.labels, ignore_index=NO_LABEL, reduction="none")
    expected = np.zeros(NUM_BLOCKS)
    np.add.at(expected, batch.padded.blocks.numpy(), losses.double().sum(dim=1).numpy())
    closed = losses_of(scorer.reader, closings_of(model, "encoder-self")[:1])[1]
    np.testing.assert_allclose(closed, expected, rtol=1e-5, atol=1e-5)


def test_rows_and_what_they_say(model, corpus):
    table = table_of(model, corpus)
    kinds = ["encoder-self", "decoder-self"] if model.task == "seq2seq" else [f"{model.anatomy.predicts.name}-self"]
    losses = table[table["metric"] == "loss"]
    wanted = [("all", 2), ("upper", 1), ("upper", 2), ("block", 0), ("block", 1)]
    assert [tuple(row) for row in losses[KEYS].to_numpy()] == [(kind, *one) for kind in kinds for one in wanted]
    assert (table["retrained"] == 0).all()
    at = losses.set_index(KEYS)["value"]
    for kind in kinds:
        assert at[kind, "upper", 2] == at[kind, "all", 2]
        assert at[kind, "upper", 1] == at[kind, "block", 1]
    assert (table["low"] <= table["value"]).all()
    assert (table["value"] <= table["high"]).all()
    assert losses["baseline"].nunique() == 1


def learned_model(matched_models, corpus, task="masked-lm", seconds=40):
    """A copy that knows something beyond frequencies: a few steps on the very corpus."""
    model = matched_models[task]
    model = load_model(copy.deepcopy(model.module), tokenizer=model.tokenizer)
    scorer = SentenceScorer(reader_of(model, corpus))
    batch = next(scorer.batches(np.arange(len(corpus)), 10_000))
    optimizer = torch.optim.AdamW(model.module.parameters(), lr=3e-3)
    for _ in range(seconds):
        optimizer.zero_grad()
        (scorer.losses(batch).sum() / batch.counts.sum()).backward()
        optimizer.step()
    return model


def test_share_is_of_what_is_learned_beyond_frequencies(matched_models, corpus):
    model = learned_model(matched_models, corpus)
    table, scorer = table_of(model, corpus), SentenceScorer(reader_of(model, corpus))
    tokens = [t for row in range(16) for t in model.tokenizer(corpus[row].text, add_special_tokens=False)["input_ids"]]
    counts, size = Counter(tokens), len(model.tokenizer)
    unigram = np.array([-np.log((counts[token] + 1) / (len(tokens) + size)) for token in range(size)])
    batch = next(scorer.batches(np.arange(16), 10_000))
    labels = batch.labels[batch.labels != NO_LABEL].numpy()
    everything = table[table["which"] == "all"].set_index("metric")
    learned = unigram[labels].mean() - everything.loc["loss", "baseline"]
    assert learned > 0.5
    assert everything.loc["share", "baseline"] == pytest.approx(learned, rel=1e-6)
    assert everything.loc["share", "value"] == pytest.approx(everything.loc["loss", "value"] / learned, rel=1e-6)
    assert len(everything.loc["share", "replicates"]) == len(everything.loc["loss", "replicates"])


def unigram(texts, size):
    """-log p of each token by its smoothed frequency in these texts, and the counts."""
    counts = Counter(token for text in texts for token in text)
    total = sum(counts.values()) + size
    return np.array([-np.log((counts[token] + 1) / total) for token in range(size)]), counts


@pytest.mark.parametrize("task", ["causal-lm", "translation"])
def test_frequencies_of_a_decoder_count_the_end_and_not_the_beginning(matched_models, corpus, task):
    model = matched_models[task]
    tokenizer = model.target_tokenizer or model.tokenizer
    texts = [tokenizer(s.translation if task == "translation" else s.text)["input_ids"][1:] for s in corpus]
    losses, counts = unigram(texts, len(tokenizer))
    assert counts[tokenizer.sep_token_id] == len(corpus)
    expected = np.zeros(NUM_BLOCKS)
    np.add.at(expected, block_of(corpus.content_ids), [losses[text].sum() for text in texts])
    np.testing.assert_allclose(losses_of(reader_of(model, corpus), [])[-1], expected)


def test_a_model_that_knows_no_more_than_frequencies_has_no_share(matched_models, corpus):
    assert set(table_of(matched_models["masked-lm"], corpus)["metric"]) == {"loss"}


def test_frequencies_are_those_of_the_training_text_where_it_is_known(matched_models, corpus, parallel_corpus):
    model = matched_models["causal-lm"]
    texts, known = ([model.tokenizer(s.text)["input_ids"][1:] for s in text] for text in (corpus, parallel_corpus))
    for ranks_from, counted in ((None, texts), (parallel_corpus, known)):
        found = losses_of(reader_of(model, corpus, ranks_from=ranks_from), [])[-1].sum()
        losses, _ = unigram(counted, len(model.tokenizer))
        assert found == pytest.approx(sum(losses[text].sum() for text in texts))


def test_the_size_of_batches_does_not_matter(model, corpus):
    small, large = (table_of(model, corpus, budget) for budget in (30, 9000))
    for name in ("value", "low", "high", "baseline"):
        np.testing.assert_allclose(small[name], large[name], rtol=1e-4, atol=1e-6)


def test_a_sentence_of_one_token_loses_nothing(matched_models):
    model, ids = matched_models["causal-lm"], torch.arange(2, 40)[:, None]
    with torch.no_grad():
        expected = model.module(ids).logits
        with closed_attention(model, self_attention_blocks(model)["decoder-self"]):
            torch.testing.assert_close(model.module(ids).logits, expected, rtol=1e-6, atol=1e-6)


def test_one_layer_is_all_of_them(parallel_corpus):
    tokenizer = train_tokenizer((sentence.text for sentence in parallel_corpus), vocab_size=60)
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    config = ModelConfig(width=16, layers=1, heads=2, feedforward=32, positions=64, initializer_range=0.3)
    module = build_models([make_objective("causal-lm")], config, vocabulary, None, seed=0)["causal-lm"]
    table = table_of(load_model(module, tokenizer=tokenizer), parallel_corpus.select(range(8)))
    assert [tuple(row) for row in table.loc[table["metric"] == "loss", KEYS[1:]].to_numpy()] == [
        ("all", 1),
        ("upper", 1),
        ("block", 0),
    ]
    assert table.loc[table["metric"] == "loss", "value"].nunique() == 1


def test_bleu_is_of_greedy_translations_with_the_same_blocks_closed(matched_models, corpus):
    model, few = matched_models["translation"], corpus.select(range(4))
    closings = [closing for closing in closings_of(model, "decoder-self") if closing.which == "all"]
    rows = context_rows(context_bleu(model, few, closings), closings)
    assert rows[[*KEYS, "metric"]].to_numpy().tolist() == [["decoder-self", "all", 2, "bleu"]]
    sources, references = zip(*((s.text, s.translation) for s in few), strict=True)

    def score():
        return bleu_statistics(translate(model, list(sources), beams=1), [[one] for one in references]).score

    whole = score()
    with by_hand(model, closings[0].blocks):
        closed = score()
    assert rows["baseline"].iloc[0] == pytest.approx(whole)
    assert rows["value"].iloc[0] == pytest.approx(closed - whole)


def test_what_is_asked_for_is_checked(matched_models, corpus, tmp_path):
    with pytest.raises(UserError, match=r"sentences must be at least 1, or None for all\. Got 0"):
        EncoderContext(0)
    with pytest.raises(UserError, match=r"kind must be among decoder-self .* Got encoder-self"):
        closings_of(matched_models["causal-lm"], "encoder-self")
    path = tmp_path / "one.txt"
    path.write_text("the cat sees\na dog\n")
    with pytest.raises(UserError, match="Give a parallel"):
        measure(matched_models["translation"], Corpus.from_text(path), [EncoderContext()])
    with pytest.raises(UserError, match="a masked-lm model"):
        context_bleu(matched_models["masked-lm"], corpus, [])


def test_models_that_it_says_nothing_about_are_passed_over():
    bare = BertModel(BertConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2))
    assert "no language-model head" in str(EncoderContext().refusal(load_model(bare)))


def test_the_same_sentences_for_every_model_of_a_corpus(matched_models, corpus):
    """Otherwise scores of two models could not be paired."""
    scores = [
        context_scores(reader_of(matched_models[task], corpus), [], 5, SMALL) for task in ("causal-lm", "causal-lm")
    ]
    np.testing.assert_array_equal(scores[0].sums_VKS[:, :, 1], scores[1].sums_VKS[:, :, 1])
    assert scores[0].num_sentences == 5
    assert scores[0].sums_VKS.shape[0] == 2  # open, and frequencies
