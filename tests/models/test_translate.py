"""Beam search in the order of the sentences, and BLEU with its signature."""

import pytest
import sacrebleu
import torch

from infoflow.foundation import UserError
from infoflow.models import bleu, load_model, translate


@pytest.fixture(scope="module")
def translator(build_module):
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    words = ["[PAD]", "[CLS]", "[SEP]", *(f"w{index}" for index in range(37))]
    core = Tokenizer(WordLevel({word: index for index, word in enumerate(words)}, unk_token="[PAD]"))
    core.pre_tokenizer = Whitespace()
    core.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[PAD]"
    )
    return load_model(build_module("encoder-decoder"), tokenizer=tokenizer)


SENTENCES = ["w1 w2 w3 w4", "w5", "w6 w7 w8 w9 w10 w11", "w3 w3"]


def test_batches_do_not_change_translations_or_their_order(translator):
    together = translate(translator, SENTENCES, beams=3)
    assert together == [translate(translator, [sentence], beams=3)[0] for sentence in SENTENCES]
    assert together == translate(translator, SENTENCES, beams=3, token_budget=8)
    assert len(set(together)) > 1


def test_one_beam_is_the_greedy_choice(translator):
    source = torch.tensor([translator.tokenizer(SENTENCES[0])["input_ids"]])
    output = [1]
    with torch.no_grad():
        for _ in range(2 * source.shape[1] + 10):
            logits = translator.module(input_ids=source, decoder_input_ids=torch.tensor([output])).logits[0, -1]
            output.append(int(logits.argmax()))
            if output[-1] == 2:
                break
    expected = translator.tokenizer.decode(output, skip_special_tokens=True).strip()
    assert translate(translator, SENTENCES[:1], beams=1) == [expected]


def test_long_sentences_are_cut_to_what_the_model_takes(translator):
    assert len(translate(translator, ["w1 " * 100], beams=1)) == 1


def test_a_language_model_does_not_translate(models):
    with pytest.raises(UserError, match="Only a sequence-to-sequence model translates"):
        translate(models("gpt2"), SENTENCES)


def test_bleu_is_sacrebleus_with_its_signature():
    hypotheses, references = ["the cat sits on the mat .", "a dog"], ["the cat sat on the mat .", "the dog"]
    score = bleu(hypotheses, references)
    assert score.score == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score)
    assert 0 < score.score < 100
    assert "tok:13a" in score.signature
    assert f"version:{sacrebleu.__version__}" in score.signature
    assert bleu(references, references).score == pytest.approx(100)


@pytest.mark.parametrize(("hypotheses", "references"), [([], []), (["a"], ["a", "b"])])
def test_bleu_needs_pairs(hypotheses, references):
    with pytest.raises(UserError, match="one reference for each hypothesis"):
        bleu(hypotheses, references)
