"""Beam search in the order of the sentences, and BLEU with its signature."""

import pytest
import sacrebleu
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from infoflow.foundation import UserError
from infoflow.models import bleu_statistics, load_model, translate, write_texts

WORDS = [f"w{index}" for index in range(12)]


def word_tokenizer():
    core = Tokenizer(WordLevel({word: index for index, word in enumerate(["[PAD]", "[CLS]", "[SEP]", *WORDS])}))
    core.pre_tokenizer = Whitespace()
    core.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]")


@pytest.fixture(scope="module")
def translator():
    """A model trained for a few seconds to replace each word by the next one."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 15, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "max_position_embeddings": 24, "hidden_dropout_prob": 0.0}
    module = transformers.EncoderDecoderModel(
        encoder=transformers.BertModel(transformers.BertConfig(**sizes), add_pooling_layer=False),
        decoder=transformers.BertLMHeadModel(
            transformers.BertConfig(**sizes, is_decoder=True, add_cross_attention=True)
        ),
    )
    module.config.pad_token_id, module.config.decoder_start_token_id, module.config.eos_token_id = 0, 1, 2
    optimizer = torch.optim.Adam(module.parameters(), lr=4e-3)
    for _ in range(250):
        words = torch.randint(3, 15, (32, 1 + int(torch.randint(5, ()))))
        ends = torch.full((32, 1), 2)
        source = torch.cat([ends - 1, words, ends], dim=1)
        target = torch.cat([ends - 1, (words - 2) % 12 + 3, ends], dim=1)
        logits = module(input_ids=source, decoder_input_ids=target[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return load_model(module, tokenizer=word_tokenizer())


SENTENCES = ["w1 w2 w3 w4", "w5", "w6 w7 w8 w9 w10", "w11 w3"]
TRANSLATIONS = ["w2 w3 w4 w5", "w6", "w7 w8 w9 w10 w11", "w0 w4"]


def test_batches_do_not_change_translations_or_their_order(translator):
    together = translate(translator, SENTENCES, beams=3)
    assert together == TRANSLATIONS
    assert together == [translate(translator, [sentence], beams=3)[0] for sentence in SENTENCES]
    assert together == translate(translator, SENTENCES, beams=3, token_budget=8)


def test_one_beam_is_the_greedy_choice(translator):
    source = torch.tensor([translator.tokenizer(SENTENCES[0])["input_ids"]])
    output = [1]
    with torch.no_grad():
        for _ in range(2 * source.shape[1] + 10 - 1):  # the last token is the end
            logits = translator.module(input_ids=source, decoder_input_ids=torch.tensor([output])).logits[0, -1]
            output.append(int(logits.argmax()))
            if output[-1] == 2:
                break
    expected = translator.tokenizer.decode(output, skip_special_tokens=True).strip()
    assert translate(translator, SENTENCES[:1], beams=1) == [expected]


def test_long_sentences_are_cut_and_runaway_outputs_ended(translator):
    (text,) = translate(translator, ["w1 " * 100], beams=2)
    assert 1 <= len(text.split()) <= 22
    (ended,) = translate(translator, ["w1 " * 20], beams=2, max_ratio=0)
    assert len(ended.split()) <= 9, "ten tokens at most, the end among them"


def test_texts_after_rows_of_ids_are_the_translations_of_their_sentences(translator):
    sentences = ["w1 w2 w3", "w7", "w4 w4 w9 w0 w1"]
    rows = [translator.tokenizer(one)["input_ids"] for one in sentences]
    assert write_texts(translator, rows, 30, beams=3) == translate(translator, sentences, beams=3)
    assert write_texts(translator, rows, 30, beams=3, token_budget=6) == translate(translator, sentences, beams=3)
    assert all(len(text.split()) <= 2 for text in write_texts(translator, rows, 2, beams=1))
    assert write_texts(translator, [], 4) == []


def test_a_language_model_writes_after_no_encoder(models):
    with pytest.raises(UserError, match="Generation from an encoder needs a sequence-to-sequence model"):
        write_texts(models("gpt2"), [[1, 2]], 4)


def test_a_language_model_does_not_translate(models):
    with pytest.raises(UserError, match="Only a sequence-to-sequence model translates"):
        translate(models("gpt2"), SENTENCES)


def test_bleu_is_sacrebleus_with_its_signature():
    hypotheses, references = ["the cat sits on the mat .", "a dog"], ["the cat sat on the mat .", "the dog"]
    score = bleu_statistics(hypotheses, [[one] for one in references])
    assert score.score == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score)
    assert 0 < score.score < 100
    assert "tok:13a" in score.signature
    assert f"version:{sacrebleu.__version__}" in score.signature
    assert bleu_statistics(references, [[one] for one in references]).score == pytest.approx(100)
