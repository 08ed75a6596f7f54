"""Decoding against the enumeration of every answer."""

import itertools
import math

import pytest
import torch
from transformers import BertConfig, BertLMHeadModel, BertModel, EncoderDecoderModel

from infoflow.retrieval import (
    SearchLimits,
    marginal_log_likelihood,
    rag_sequence_answer,
    rag_token_answer,
    reader_with_passages,
    sequence_log_likelihoods,
)

START, END, SIZE, LONGEST = 0, 1, 5, 2
EVERYTHING = SearchLimits(start=START, end=END, beams=SIZE**LONGEST, max_tokens=LONGEST)


def tiny_reader(seed=0):
    torch.manual_seed(seed)
    shape = {"vocab_size": SIZE, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    shape |= {"intermediate_size": 16, "max_position_embeddings": 16, "hidden_dropout_prob": 0.0}
    shape |= {"attention_probs_dropout_prob": 0.0, "initializer_range": 0.8}
    encoder = BertModel(BertConfig(**shape), add_pooling_layer=False)
    decoder = BertLMHeadModel(BertConfig(**shape, is_decoder=True, add_cross_attention=True))
    model = EncoderDecoderModel(encoder=encoder, decoder=decoder).eval().double()
    model.config.decoder_start_token_id, model.config.pad_token_id = START, 0
    return model


@pytest.fixture(scope="module", params=[0, 1, 2])
def read(request):
    model = tiny_reader(request.param)
    generator = torch.Generator().manual_seed(request.param)
    input_ids = torch.randint(2, SIZE, (3, 6), generator=generator)
    mask = torch.ones_like(input_ids)
    mask[1, 4:] = 0
    prior = torch.rand(3, generator=generator, dtype=torch.float64).add(0.1)
    return model, input_ids, mask, prior / prior.sum()


def every_answer():
    words = [token for token in range(SIZE) if token != END]
    return [answer for length in range(LONGEST + 1) for answer in itertools.product(words, repeat=length)]


@torch.no_grad()
def marginals(read, level):
    """log p of every answer, by its definition."""
    model, input_ids, mask, prior = read
    found = {}
    for answer in every_answer():
        target = torch.tensor([[*answer, END]])
        logs = sequence_log_likelihoods(model, input_ids[None], mask[None], target, START)
        found[answer] = marginal_log_likelihood(prior.log()[None], logs, level).item()
    return found


def test_rag_token_finds_the_best_answer(read):
    model, input_ids, mask, prior = read
    wanted = marginals(read, "token")
    found = rag_token_answer(reader_with_passages(model, input_ids, mask), prior, EVERYTHING)
    assert found.tokens == max(wanted, key=wanted.__getitem__)
    assert found.log_probability == pytest.approx(wanted[found.tokens])


@pytest.mark.parametrize("decoding", ["thorough", "fast"])
def test_rag_sequence_finds_the_best_answer(read, decoding):
    """With beams for all, every hypothesis is in every beam, and both decodings are exact."""
    model, input_ids, mask, prior = read
    wanted = marginals(read, "sequence")
    found = rag_sequence_answer(reader_with_passages(model, input_ids, mask), prior, EVERYTHING, decoding)
    assert found.tokens == max(wanted, key=wanted.__getitem__)
    assert found.log_probability == pytest.approx(wanted[found.tokens])


def test_narrow_beams_give_a_real_answers_probability(read):
    model, input_ids, mask, prior = read
    wanted = marginals(read, "sequence")
    limits = EVERYTHING._replace(beams=2)
    thorough = rag_sequence_answer(reader_with_passages(model, input_ids, mask), prior, limits)
    fast = rag_sequence_answer(reader_with_passages(model, input_ids, mask), prior, limits, "fast")
    assert thorough.log_probability == pytest.approx(wanted[thorough.tokens])
    assert fast.log_probability <= wanted[fast.tokens] + 1e-9
    assert fast.log_probability <= thorough.log_probability + 1e-9


def test_answers_are_a_distribution(read):
    """Beside answers longer than the limit: nothing is counted twice."""
    for level in ("sequence", "token"):
        assert 0 < sum(math.exp(one) for one in marginals(read, level).values()) < 1 + 1e-9


def test_one_passage_is_plain_beam_search(read):
    model, input_ids, mask, _ = read
    one = reader_with_passages(model, input_ids[:1], mask[:1])
    alone = torch.ones(1, dtype=torch.float64)
    answers = [rag_token_answer(one, alone, EVERYTHING), rag_sequence_answer(one, alone, EVERYTHING)]
    assert answers[0].tokens == answers[1].tokens
    assert answers[0].log_probability == pytest.approx(answers[1].log_probability)


def test_agrees_with_hugging_faces_rag():
    """Its likelihoods are right for answers of at least two tokens."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    asking = transformers.DPRConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    bart = transformers.BartConfig(
        vocab_size=20,
        d_model=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
        max_position_embeddings=32,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=2,
        dropout=0.0,
        init_std=0.5,
        forced_eos_token_id=None,
        tie_word_embeddings=True,
    )
    config = transformers.RagConfig.from_question_encoder_generator_configs(asking, bart, n_docs=3)
    config.pad_token_id, config.bos_token_id = 1, 0
    generator = transformers.BartForConditionalGeneration(bart).eval()
    context = torch.randint(4, 20, (6, 7))
    mask, answers = torch.ones_like(context), torch.tensor([[5, 6, 7, 2], [8, 9, 4, 2]])
    scores = torch.randn(2, 3)
    logs = sequence_log_likelihoods(generator, context.unflatten(0, (2, 3)), mask.unflatten(0, (2, 3)), answers, 2)
    shifted = torch.cat([torch.full((2, 1), 2), answers], dim=1)  # theirs begin with the start token
    for cls, level in (
        (transformers.RagSequenceForGeneration, "sequence"),
        (transformers.RagTokenForGeneration, "token"),
    ):
        rag = cls(config=config, question_encoder=transformers.DPRQuestionEncoder(asking), generator=generator).eval()
        loss = rag(
            context_input_ids=context,
            context_attention_mask=mask,
            doc_scores=scores,
            labels=shifted,
            decoder_input_ids=shifted,
            reduce_loss=False,
            use_cache=False,
        ).loss
        torch.testing.assert_close(-loss, marginal_log_likelihood(scores, logs, level), rtol=1e-4, atol=1e-4)
