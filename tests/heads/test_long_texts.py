"""Attention of long texts by blocks of queries, by distance, and of heads that find a needle."""

from contextlib import contextmanager
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import GPTJConfig, GPTJForCausalLM, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from infoflow.corpus import Corpus, train_tokenizer
from infoflow.flow import PassOptions, Reader, measure, query_block
from infoflow.foundation import Job, SilentDisplay, UserError, use_display
from infoflow.heads import (
    Ablation,
    AttentionByDistance,
    Confidence,
    Coreference,
    Entropy,
    HeadDistance,
    PositionalScores,
    RareTokenScores,
    RelationScores,
    Relevance,
    RetrievalHeads,
    SurfaceStatistics,
    TellingSentences,
    head_roles,
    word_attention,
)
from infoflow.models import load_model, tap
from infoflow.representations import InfluenceByFrequency

ATTENTION = torch.softmax(torch.randn(2, 2, 3, 9, 9, generator=torch.Generator().manual_seed(0)).double(), 4)
BLOCKS = PassOptions(max_length=1000, attention_bytes=1 << 21)
VALID = torch.tensor([[True] * 9, [False, True, True, True, True, True, False, False, False]])


def text(num_words: int, seed: int = 0) -> str:
    words = np.random.default_rng(seed).choice(["the", "old", "cat", "sees", "a", "red", "house", "dog"], num_words)
    return " ".join(words.tolist())


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus.from_sentences([text(700), text(30, 1), text(640, 2)], "long")


@pytest.fixture(scope="module")
def tokenizer(corpus):
    return train_tokenizer((sentence.text for sentence in corpus), vocab_size=40, max_length=1024)


@pytest.fixture(params=["all", "window"])
def model(request, tokenizer):
    torch.manual_seed(0)
    size = {"vocab_size": len(tokenizer), "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2}
    size |= {"num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": tokenizer.pad_token_id}
    if request.param == "all":
        module = LlamaForCausalLM(LlamaConfig(**size))
    else:
        module = MistralForCausalLM(MistralConfig(**size, sliding_window=50))
    return load_model(module, tokenizer=tokenizer)


class Kept(SilentDisplay):
    """Every share of the tokens that was reported."""

    def __init__(self):
        self.reached: list[float] = []

    @contextmanager
    def progress(self, label, total, unit=""):
        job = Job(label, total, unit, seconds_between=0)
        if unit == "tokens":
            job.show = lambda one: self.reached.append(one.done / one.total)
        yield job


def test_progress_advances_within_a_long_text(model):
    display = Kept()
    with use_display(display):
        measure(model, Corpus.from_sentences([text(530)], "one"), [Confidence()], options=BLOCKS)
    assert len(display.reached) > 8
    assert max(np.diff([0, *display.reached])) < 0.3
    assert display.reached[-1] == pytest.approx(1)


def test_reading_by_blocks_changes_no_table(model, request):
    average = {"all": "micro", "window": "document"}[request.node.callspec.params["model"]]
    corpus = Corpus.from_sentences([text(530), text(30, 1), text(520, 2)], "longer than texts that are read at once")
    how = {"average": average}
    measures = [Confidence(**how), Entropy(**how), PositionalScores(**how), SurfaceStatistics(**how)]
    measures += [AttentionByDistance(**how), RareTokenScores(top=2)]
    assert 1 < (query_block(model, 520, BLOCKS) or 0) < 130
    expected = measure(model, corpus, measures, options=PassOptions(max_length=1000))
    found = measure(model, corpus, measures, options=BLOCKS)
    for name, table in expected.items():
        assert len(table)
        both = (one.drop(columns="replicates") for one in (found[name], table))
        pd.testing.assert_frame_equal(*both, rtol=3e-5, atol=1e-6, obj=name)  # sums of 500 numbers in float32


@pytest.fixture(scope="module")
def trees(tmp_path_factory) -> Corpus:
    """Long texts with random trees, whose root is in the middle, and random mentions."""
    random, sentences = np.random.default_rng(0), []
    for num_words in (560, 30, 545):
        words = random.choice(["the", "old", "cat", "sees", "a", "houses", "dogsee"], num_words)
        to_root = num_words // 2 - np.arange(num_words)
        heads = np.arange(num_words) + np.sign(to_root) * np.minimum(abs(to_root), random.choice([1, 2, 40], num_words))
        rows = [
            f"{at + 1}\t{word}\t_\tNOUN\t_\t_\t{0 if head == at else head + 1}\t{random.choice(['nsubj', 'det'])}\t_\t"
            + (f"Entity=(e{random.integers(5)})" if random.random() < 0.3 else "_")
            for at, (word, head) in enumerate(zip(words, heads, strict=True))
        ]
        sentences.append("\n".join([f"# text = {' '.join(words)}", *rows]))
    path = tmp_path_factory.mktemp("long") / "long.conllu"
    path.write_text("\n\n".join(sentences) + "\n\n")
    return Corpus.from_conllu(path, misc=("Entity",))


def read_in(model, corpus: Corpus, options: PassOptions) -> dict[str, pd.DataFrame]:
    tables = [
        measure(model, corpus, [RelationScores(minimum=1, subwords=merge), Coreference(candidates=candidates)], options)
        for merge, candidates in (("mean", "words"), ("first", "mentions"))
    ]
    return {f"{name} {number}": table for number, one in enumerate(tables) for name, table in one.items()}


@pytest.mark.parametrize("where", [None, ("upos", "NOUN")])
def test_reading_by_blocks_changes_no_answer_about_words(model, trees, where):
    """Words have several tokens, which may lie in two blocks."""
    assert 1 < (query_block(model, 1000, BLOCKS) or 0) < 130
    for matrix in [one for one in model.module.parameters() if one.ndim > 1]:
        matrix.data *= 20  # attention that is nearly uniform has near ties, which the last digit decides
    expected = read_in(model, trees, PassOptions(max_length=1000, where=where))
    found = read_in(model, trees, replace(BLOCKS, where=where))
    for name, table in expected.items():
        assert len(table)
        keys = ["value", "count", "baseline", "uniform", *(["offset"] if "relations" in name else ["head_match"])]
        np.testing.assert_allclose(found[name][keys], table[keys], atol=1e-9, err_msg=name)


def test_answers_about_words_of_a_long_text_against_a_loop(model, trees):
    """A head's largest weight in the matrix of all words, for each edge that runs backwards."""
    for matrix in [one for one in model.module.parameters() if one.ndim > 1]:
        matrix.data *= 20
    model.module.set_attn_implementation("eager")
    corpus = trees.select(np.array([0]))
    stream = Reader(model, corpus, max_length=1000, seed=0, decoder=False).padded(np.array([0])).streams["decoder"]
    with torch.no_grad():
        layers = model.module(stream.input_ids, output_attentions=True).attentions
    hits, count = np.zeros((4, len(layers), 4)), np.zeros(4)
    merged = [word_attention(weights, stream.words)[0].numpy() for weights in layers]
    for dependent, head in enumerate(corpus[0].head):
        later, earlier = max(dependent, head), min(dependent, head)
        kinds = [0, 2] if later == dependent else [1, 3]  # Voita and Clark, from the dependent or from the head
        for kind in kinds if head >= 0 else []:
            count[kind] += 1
            for layer, weights in enumerate(merged):
                without = weights * (1 - np.eye(weights.shape[1])) if kind > 1 else weights
                answers = without[:, :, dependent].argmax(1) if kind == 3 else without[:, later].argmax(1)
                hits[kind, layer] += answers == (later if kind == 3 else earlier)
    table = measure(model, corpus, [RelationScores(minimum=1)], BLOCKS)["head_relations"].query("relation != 'all'")
    table = table.assign(hits=table["value"] * table["count"])
    for kind, name in enumerate(product(["voita", "clark"], ["dependent→head", "head→dependent"])):
        own = table[(table["convention"] == name[0]) & (table["direction"] == name[1])]
        sums = own.groupby(["layer", "head"])[["hits", "count"]].sum()
        assert sums["count"].unique().tolist() == [count[kind]]
        np.testing.assert_allclose(sums["hits"].to_numpy(), hits[kind].ravel(), atol=1e-6, err_msg=str(name))


def test_blocks_never_hold_all_queries(model):
    sizes: list[tuple[int, ...]] = []
    ids = torch.arange(5, 35)[None]
    with torch.no_grad(), tap(model, on_attention=lambda call: sizes.append(call.weights.shape), query_block=8):
        model.module(input_ids=ids)
    assert [size[2] for size in sizes] == [8, 8, 8, 6] * 2


def test_measures_of_whole_texts_say_what_they_leave_out(model, corpus):
    warned: list[str] = []

    class Kept(SilentDisplay):
        def warn(self, message: str) -> None:
            warned.append(message)

    options = PassOptions(max_length=1000, attention_bytes=1 << 19)
    with use_display(Kept()):
        tables = measure(model, corpus, [Confidence(), HeadDistance()], options=options)
    (message,) = warned
    assert message.startswith("head_distance of")
    assert "2 texts" in message
    assert len(tables["head_distance"])  # the short text


WHOLE_TEXTS = TellingSentences(sentences=3), Relevance(), InfluenceByFrequency(per_bin=160, edges=(1, 9))


@pytest.mark.parametrize("measured", WHOLE_TEXTS, ids=lambda one: one.name)
def test_measures_that_run_whole_texts_leave_out_long_ones(model, measured):
    corpus = Corpus.from_sentences([text(700), text(640, 2), *(text(40, seed) for seed in range(3, 9))], "long")
    warned: list[str] = []
    lengths: list[int] = []

    class Kept(SilentDisplay):
        def warn(self, message: str) -> None:
            warned.append(message)

    options = PassOptions(max_length=1000, attention_bytes=1 << 19)
    with use_display(Kept()), tap(model, on_attention=lambda call: lengths.append(call.weights.shape[3])):
        table = measure(model, corpus, [measured], options=options)[measured.name]
    assert [message.split(" of ")[0] for message in warned] == [measured.name]
    assert "leaves out 2 texts of " in warned[0]
    assert 0 < max(lengths) < 100
    assert len(table)  # the short texts


def test_own_attention_code_is_refused_before_work(corpus, tokenizer):
    config = GPTJConfig(vocab_size=len(tokenizer), n_embd=16, n_layer=1, n_head=2, rotary_dim=4, n_positions=1024)
    model = load_model(GPTJForCausalLM(config), tokenizer=tokenizer)
    options = PassOptions(max_length=1000, attention_bytes=1 << 19)
    with pytest.raises(UserError, match="Lower max_length"):
        measure(model, corpus, [Confidence()], options=options)


def test_distances_agree_with_their_definition():
    found = AttentionByDistance().of(ATTENTION, VALID)
    for number, row in enumerate(AttentionByDistance().keys()):
        farthest = row["farthest"] if row["farthest"] >= 0 else 10**9
        total, count = np.zeros((2, 3)), 0
        for b, real in enumerate(VALID.tolist()):
            places = [i for i, one in enumerate(real) if one]
            for i in places:
                keys = [j for j in places if row["nearest"] <= abs(i - j) <= farthest]
                if row["to"] == "first token":
                    keys = [j for j in keys if j == places[0]]
                total += ATTENTION[:, b, :, i][..., keys].sum(2).numpy()
                count += bool(keys)
        expected = total / count if count else np.full((2, 3), np.nan)
        np.testing.assert_allclose(found[..., number].numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("attention_bytes", [1 << 28, 1 << 18])
def test_a_head_that_copies_has_the_highest_score(corpus, tokenizer, attention_bytes):
    """Head 2 of layer 1 looks at what followed the latest earlier copy of the six tokens up to the query."""
    sentences = Corpus.from_sentences([text(12, seed) for seed in range(200)], "needles")
    torch.manual_seed(0)
    size = {"vocab_size": len(tokenizer), "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2}
    model = load_model(LlamaForCausalLM(LlamaConfig(**size, num_attention_heads=4)), tokenizer=tokenizer)
    read: list[list[int]] = []
    model.module.get_input_embeddings().register_forward_pre_hook(lambda _, args: read.append(args[0][0].tolist()))

    def copies(call):
        if call.layer != 1 or call.weights.shape[2] == 0:
            return None
        weights = call.weights.clone()
        for row in range(weights.shape[2]):
            found = _after_the_same(read[-1], call.start + row)
            if found is not None:
                weights[0, 2, row] = 0
                weights[0, 2, row, found] = 1
        return call.edited(weights=weights)

    options = PassOptions(max_length=700, attention_bytes=attention_bytes)
    with tap(model, on_attention=copies):
        table = measure(model, sentences, [RetrievalHeads(needles=4)], options=options)["head_retrieval"]
    best = table.sort_values("value").iloc[-1]
    assert (best["layer"], best["head"], best["length"]) == (1, 2, 700)
    assert best["value"] > 0.8
    assert best["baseline"] < 0.3
    roles = head_roles({"head_retrieval": table})
    held = roles[roles["holds"]]
    assert held[["role", "layer", "head"]].to_numpy().tolist() == [["retrieval", 1, 2]]


def _after_the_same(ids: list[int], query: int) -> int | None:
    """The position after the latest earlier copy of the six tokens up to `query`."""
    wanted = ids[query - 5 : query + 1]
    return next((j + 1 for j in range(query - 1, 4, -1) if ids[j - 5 : j + 1] == wanted), None)


def test_distances_of_many_heads_read_fewer_long_texts(tokenizer):
    """The cost grows with the square of heads and of tokens: 1,024 heads at 512 tokens took hours for 300 texts."""
    texts = Corpus.from_sentences([text(300, seed) for seed in range(40)], "texts")
    size = {"vocab_size": len(tokenizer), "hidden_size": 512, "intermediate_size": 8, "num_hidden_layers": 4}
    model = load_model(LlamaForCausalLM(LlamaConfig(**size, num_attention_heads=256)), tokenizer=tokenizer)
    reader = Reader(model, texts, max_length=512, seed=0, decoder=False)
    measured = HeadDistance()
    measured.prepare(reader)
    read = measured.reads(texts.content_ids)
    pairs = 1024**2 / 2
    assert 1 <= read.sum() == 2e11 // (pairs * reader.longest(reader.rows) ** 2)
    few = HeadDistance(sentences=1)
    few.prepare(reader)
    assert few.reads(texts.content_ids).sum() == 1


def test_measures_that_run_a_model_many_times_leave_out_the_longest_texts():
    """Each run of a text of 32,000 tokens takes minutes, and a pruning curve needs hundreds."""
    tokenizer = train_tokenizer([text(700)], vocab_size=40, max_length=8000)
    size = {"vocab_size": len(tokenizer), "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    size |= {"num_attention_heads": 2, "max_position_embeddings": 8000, "pad_token_id": tokenizer.pad_token_id}
    model, notes = load_model(LlamaForCausalLM(LlamaConfig(**size)), tokenizer=tokenizer), []

    class Noted(SilentDisplay):
        def note(self, message: str) -> None:
            notes.append(message)

    def ablated(texts: list[str]) -> pd.DataFrame:
        with use_display(Noted()):
            options = PassOptions(max_length=8000)
            corpus = Corpus.from_sentences(texts, "long")
            return measure(model, corpus, [Ablation()], options=options)["head_ablation"]

    table = ablated([text(4500), text(30, 1), text(20, 2)])
    assert "leave out 1 of 3 texts, which have more than 4,096 tokens" in notes[0]
    pd.testing.assert_frame_equal(table, ablated([text(30, 1), text(20, 2)]))
    with pytest.raises(UserError, match="all texts have more than 4,096 tokens: lower max_length"):
        ablated([text(4500)])
