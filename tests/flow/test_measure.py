"""One pass: what measures see, and that batches, shards and padding do not change it."""

import copy
import inspect
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import BartConfig, BartModel, BertConfig, BertModel

from infoflow.corpus import Corpus, generate_grammar, train_tokenizer
from infoflow.flow import (
    Activations,
    Measure,
    PassOptions,
    Reader,
    SampleMeasure,
    SampleRequest,
    TokenSample,
    collect,
    measure,
    measure_shard,
    merge_shards,
)
from infoflow.foundation import NUM_BLOCKS, UserError
from infoflow.heads import Confidence
from infoflow.models import Model, load_model, tap
from infoflow.results import Column, TableSchema


class StateMean(Measure):
    """Mean state per layer, kept per block: small enough to check by hand."""

    table: ClassVar[TableSchema] = TableSchema(
        name="state_mean",
        version=1,
        description="mean of all state entries",
        columns=(
            Column(name="stack", dtype="string", unit="", description="stack"),
            Column(name="layer", dtype="int64", unit="", description="layer"),
            Column(name="value", dtype="float64", unit="", description="mean"),
            Column(name="count", dtype="int64", unit="tokens", description="tokens"),
        ),
    )
    needs = frozenset({"hidden"})

    def __init__(self) -> None:
        self._sums: dict[str, np.ndarray] = {}
        self._counts: dict[str, np.ndarray] = {}

    def update(self, activations: Activations) -> None:
        for stack, states in activations.hidden.items():
            valid = activations.streams[stack].valid
            per_layer = torch.stack([(s.double().mean(-1) * valid).sum(1) for s in states])  # (L+1, B)
            sums = self._sums.setdefault(stack, np.zeros((NUM_BLOCKS, len(states))))
            counts = self._counts.setdefault(stack, np.zeros(NUM_BLOCKS, dtype=np.int64))
            np.add.at(sums, activations.blocks.numpy(), per_layer.T.numpy())
            np.add.at(counts, activations.blocks.numpy(), valid.sum(1).numpy())

    def merge(self, other: "StateMean") -> None:
        for stack in other._sums:
            self._sums[stack] = self._sums.get(stack, 0) + other._sums[stack]
            self._counts[stack] = self._counts.get(stack, 0) + other._counts[stack]

    def state_dict(self) -> dict[str, np.ndarray]:
        return {f"sums.{k}": v for k, v in self._sums.items()} | {f"counts.{k}": v for k, v in self._counts.items()}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        self._sums = {k[5:]: v for k, v in state.items() if k.startswith("sums.")}
        self._counts = {k[7:]: v for k, v in state.items() if k.startswith("counts.")}

    def result(self) -> pd.DataFrame:
        rows = [
            {"stack": stack, "layer": layer, "value": value, "count": self._counts[stack].sum()}
            for stack, sums in self._sums.items()
            for layer, value in enumerate(sums.sum(0) / self._counts[stack].sum())
        ]
        return pd.DataFrame(rows)


class SampledMean(SampleMeasure):
    """Mean and identity of the sampled states."""

    table: ClassVar[TableSchema] = TableSchema(
        name="sampled_mean",
        version=1,
        description="mean of the sampled states",
        columns=(
            Column(name="stack", dtype="string", unit="", description="stack"),
            Column(name="regime", dtype="string", unit="", description="regime"),
            Column(name="layer", dtype="int64", unit="", description="layer"),
            Column(name="value", dtype="float64", unit="", description="mean"),
            Column(name="count", dtype="int64", unit="tokens", description="tokens"),
            Column(name="checksum", dtype="int64", unit="", description="hash of the occurrences"),
        ),
    )

    def __init__(self, regime: str = "clean", occurrences: int = 50) -> None:
        self.regime, self.request = regime, SampleRequest(occurrences=occurrences, top_types=20)

    def refusal(self, model: Model) -> str | None:
        return "only masked LMs" if self.regime == "training" and model.task != "masked-lm" else None

    def compute(self, sample: TokenSample) -> pd.DataFrame:
        at = sample.occurrences
        checksum = int((at.sentence * 1_000_003 + at.position * 31 + at.token * 7 + at.label).sum())
        rows = [
            {
                "stack": sample.facts.stack,
                "regime": sample.facts.regime,
                "layer": layer,
                "value": float(sample.states(layer).astype(np.float64).mean()),
                "count": len(sample),
                "checksum": checksum,
            }
            for layer in range(sample.num_states)
        ]
        return pd.DataFrame(rows)


@pytest.fixture(params=["masked-lm", "causal-lm", "translation"])
def matched(request, matched_models) -> Model:
    return matched_models[request.param]


def by_hand(model: Model, corpus: Corpus, stack: str) -> list[np.ndarray]:
    """Every sentence alone: (L+1) arrays of the valid tokens' states."""
    rows: list[list[np.ndarray]] = []
    target = model.target_tokenizer or model.tokenizer
    for sentence in corpus:
        ids = torch.tensor([model.tokenizer(sentence.text)["input_ids"]])
        arguments = {"input_ids": ids}
        special = torch.tensor([token in model.tokenizer.all_special_ids for token in ids[0].tolist()])
        if stack == "decoder" and model.task == "seq2seq":
            translated = target(sentence.translation)["input_ids"][:-1]
            arguments["decoder_input_ids"] = torch.tensor([translated])
            special = torch.tensor([token in target.all_special_ids for token in translated])
        elif model.task == "seq2seq":
            arguments["decoder_input_ids"] = ids[:, :1]
        with tap(model, hidden=True) as tapped, torch.no_grad():
            model.module(**arguments)
        rows.append([state[0][~special].numpy() for state in tapped.hidden[stack]])
    return [np.concatenate(layer) for layer in zip(*rows, strict=True)]


def test_streaming_measure_equals_every_sentence_alone(matched, parallel_corpus) -> None:
    table = measure(matched, parallel_corpus, [StateMean()], PassOptions(tokens_per_batch=64))["state_mean"]
    for stack, part in table.groupby("stack"):
        expected = by_hand(matched, parallel_corpus, str(stack))
        np.testing.assert_allclose(part["value"], [layer.mean() for layer in expected], rtol=1e-4, atol=1e-6)
        assert (part["count"] == len(expected[0])).all()


def test_sample_holds_the_states_of_its_occurrences(matched, parallel_corpus, tmp_path) -> None:
    collected = collect(matched, parallel_corpus, [SampledMean(occurrences=10_000)], tmp_path)
    for (stack, _), sample in collected.samples.items():
        expected = by_hand(matched, parallel_corpus, stack)
        assert len(sample) == len(expected[0])
        for layer in range(sample.num_states):
            ours = sample.states(layer)[np.lexsort((sample.occurrences.position, sample.occurrences.row))]
            np.testing.assert_allclose(ours, expected[layer], atol=2e-5)


@pytest.mark.parametrize("tokens_per_batch", [40, 100_000])
def test_batch_size_changes_nothing(matched, parallel_corpus, tokens_per_batch) -> None:
    measures = [StateMean(), SampledMean()]
    reference = measure(matched, parallel_corpus, measures, PassOptions(tokens_per_batch=300))
    other = measure(matched, parallel_corpus, measures, PassOptions(tokens_per_batch=tokens_per_batch))
    for name, table in reference.items():
        pd.testing.assert_frame_equal(table, other[name], rtol=1e-5, atol=1e-6)


def test_smaller_sample_is_the_beginning_of_a_larger_one(matched_models, parallel_corpus, tmp_path) -> None:
    model = matched_models["masked-lm"]
    small = collect(model, parallel_corpus, [SampledMean(occurrences=20)], tmp_path / "a").samples
    large = collect(model, parallel_corpus, [SampledMean(occurrences=60)], tmp_path / "b").samples
    key = ("encoder", "clean")
    np.testing.assert_array_equal(small[key].occurrences.sentence, large[key].first(20).occurrences.sentence)
    np.testing.assert_allclose(small[key].states(2), large[key].first(20).states(2), atol=1e-6)


def test_byte_budget_bounds_the_sample(matched_models, parallel_corpus) -> None:
    model = matched_models["masked-lm"]
    num_states, width = 3, 32
    options = PassOptions(sample_bytes=17 * num_states * width * 4)
    table = measure(model, parallel_corpus, [SampledMean(occurrences=50)], options)["sampled_mean"]
    assert set(table["count"]) == {17}


def test_training_regime_of_a_masked_lm(matched_models, parallel_corpus, tmp_path) -> None:
    model = matched_models["masked-lm"]
    measures = [SampledMean("training", occurrences=25)]
    sample = collect(model, parallel_corpus, measures, tmp_path).samples["encoder", "training"]
    at = sample.occurrences
    assert 15 < len(sample) <= 25  # so many passes are expected to yield 1.3 times as many
    assert (at.token != at.label).all()
    assert (at.label >= 5).all()
    assert (at.token != model.tokenizer.mask_token_id).all()
    frequent = np.argsort(-sample.facts.frequencies, kind="stable")[:20]
    assert set(at.token) <= set(frequent)
    assert at.draw.max() >= 1  # 40 sentences yield fewer than 15 occurrences in one pass


@pytest.mark.parametrize("num_shards", [2, 3])
def test_shards_merge_to_the_whole(matched, parallel_corpus, tmp_path, num_shards) -> None:
    measures = [StateMean(), SampledMean()]
    options = PassOptions(tokens_per_batch=64)
    whole = measure(matched, parallel_corpus, measures, options)
    folders = [
        measure_shard(matched, parallel_corpus, measures, i, num_shards, tmp_path / str(i), options)
        for i in range(num_shards)
    ]
    merged = merge_shards(matched, parallel_corpus, measures, folders[::-1], tmp_path / "merged", options).tables
    for name, table in whole.items():
        pd.testing.assert_frame_equal(table, merged[name], rtol=1e-12)


def test_merge_refuses_incomplete_or_foreign_shards(matched_models, parallel_corpus, tmp_path) -> None:
    model, other = matched_models["masked-lm"], matched_models["causal-lm"]
    shard = measure_shard(model, parallel_corpus, [StateMean()], 0, 2, tmp_path / "0")
    with pytest.raises(UserError, match=r"each once. Got 0"):
        merge_shards(model, parallel_corpus, [StateMean()], [shard], tmp_path / "m")
    foreign = measure_shard(other, parallel_corpus, [StateMean()], 1, 2, tmp_path / "1")
    with pytest.raises(UserError, match="different models"):
        merge_shards(model, parallel_corpus, [StateMean()], [shard, foreign], tmp_path / "m")
    with pytest.raises(UserError, match="i < n"):
        measure_shard(model, parallel_corpus, [StateMean()], 2, 2, tmp_path / "2")
    assert not (tmp_path / "2").exists()


def test_measures_are_not_changed_by_a_run(matched_models, parallel_corpus) -> None:
    model, mean = matched_models["masked-lm"], StateMean()
    first = measure(model, parallel_corpus, [mean])["state_mean"]
    second = measure(model, parallel_corpus, [mean])["state_mean"]
    pd.testing.assert_frame_equal(first, second)


def test_measures_that_do_not_apply(matched_models, parallel_corpus) -> None:
    with pytest.raises(UserError, match="only masked LMs"):
        measure(matched_models["causal-lm"], parallel_corpus, [SampledMean("training")])


def test_nan_states_name_layer_and_sentence(matched_models, parallel_corpus) -> None:
    model = matched_models["masked-lm"]
    broken = load_model(copy.deepcopy(model.module), tokenizer=model.tokenizer)
    with torch.no_grad():
        broken.module.bert.encoder.layer[1].output.dense.weight[0, 0] = float("nan")
    with pytest.raises(UserError, match=r"encoder, layer 2, sentence \d+"):
        measure(broken, parallel_corpus, [StateMean()])


def test_only_the_needed_activations_are_computed(matched_models, parallel_corpus) -> None:
    seen = []

    class Watch(StateMean):
        def update(self, activations: Activations) -> None:
            seen.append((bool(activations.hidden), bool(activations.attention), bool(activations.heads)))
            super().update(activations)

    measure(matched_models["masked-lm"], parallel_corpus, [Watch()])
    assert set(seen) == {(True, False, False)}


def test_the_model_runs_once_per_batch(matched_models, parallel_corpus) -> None:
    model, calls = matched_models["masked-lm"], []
    handle = model.module.bert.register_forward_hook(lambda *_: calls.append(1))
    try:
        measure(model, parallel_corpus, [StateMean(), StateMean(), SampledMean()], PassOptions(tokens_per_batch=64))
        many = len(calls)
        calls.clear()
        measure(model, parallel_corpus, [StateMean()], PassOptions(tokens_per_batch=64))
    finally:
        handle.remove()
    assert many == len(calls) > 1


def test_a_saved_sample_reads_back(matched_models, parallel_corpus, tmp_path) -> None:
    samples = collect(matched_models["masked-lm"], parallel_corpus, [SampledMean()], tmp_path).samples
    sample, again = samples["encoder", "clean"], TokenSample.load(tmp_path / "encoder-clean")
    np.testing.assert_array_equal(sample.states(1), again.states(1))
    np.testing.assert_array_equal(sample.occurrences.word, again.occurrences.word)
    np.testing.assert_array_equal(sample.facts.frequencies, again.facts.frequencies)
    assert (again.facts.stack, again.facts.regime, again.facts.task) == ("encoder", "clean", "masked-lm")


def test_long_sentences_run_in_smaller_batches_where_attention_is_held(matched_models, parallel_corpus) -> None:
    sizes = []

    class Watch(StateMean):
        needs = frozenset({"hidden", "attention"})

        def update(self, activations: Activations) -> None:
            (layers,) = activations.attention.values()
            sizes.append(sum(layer.numel() * 4 for layer in layers))
            super().update(activations)

    model = matched_models["masked-lm"]
    bounded = measure(model, parallel_corpus, [Watch()], PassOptions(attention_bytes=20_000))["state_mean"]
    assert max(sizes) <= 20_000
    whole = measure(model, parallel_corpus, [StateMean()])["state_mean"]
    pd.testing.assert_frame_equal(bounded, whole, rtol=1e-5, atol=1e-6)


def test_training_noise_gives_every_token_the_same_chance(matched_models) -> None:
    corpus = generate_grammar(1500)
    reader = Reader(matched_models["masked-lm"], corpus, max_length=512, seed=0, decoder=False)
    reader.use_training_noise(50)
    lengths, probes = [], []
    for number in reader.rows.tolist():
        row = reader.sentence_rows(number, "training", 0)["encoder"]
        lengths.append(len(row.tokens))
        probes.append(len(row.probes))
    lengths, probes = np.array(lengths), np.array(probes)
    short = lengths < np.median(lengths)
    rates = [probes[part].sum() / (lengths[part] - 2).sum() for part in (short, ~short)]
    # Below the 3.75 % that are drawn: a replacement by the very same token is no probe.
    assert rates[0] == pytest.approx(rates[1], rel=0.25)
    assert 0.025 < min(rates) < max(rates) < 0.042


def test_a_streaming_measure_of_the_training_regime_sees_each_sentence_once(matched_models, parallel_corpus) -> None:
    seen = []

    class Watch(StateMean):
        def update(self, activations: Activations) -> None:
            seen.extend(activations.sentence_ids.tolist())
            assert activations.regime == "training"
            super().update(activations)

    watch = Watch()
    watch.regime = "training"
    measure(matched_models["masked-lm"], parallel_corpus, [watch, SampledMean("training")])
    assert sorted(seen) == sorted(parallel_corpus.content_ids.tolist())


def test_two_stacks_without_a_head_are_read(parallel_corpus) -> None:
    tokenizer = train_tokenizer((sentence.text for sentence in parallel_corpus), vocab_size=60)
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = BartConfig(vocab_size=60, d_model=16, encoder_ffn_dim=16, decoder_ffn_dim=16, **sizes)
    model = load_model(BartModel(config), tokenizer=tokenizer)
    table = measure(model, parallel_corpus, [Confidence()])["head_confidence"]
    assert set(zip(table["stack"], table["kind"], strict=True)) == {
        ("encoder", "self"),
        ("decoder", "self"),
        ("decoder", "cross"),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_wide_models_of_any_precision_read_small_batches(parallel_corpus: Corpus, matched_models, dtype) -> None:
    """Of width 256 and more on a CPU: one batch holds a few sentences, never none."""
    tokenizer = matched_models["masked-lm"].tokenizer
    shape = {"hidden_size": 256, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    torch.manual_seed(0)
    wide = BertModel(BertConfig(vocab_size=len(tokenizer), **shape)).to(dtype)
    table = measure(load_model(wide, tokenizer=tokenizer), parallel_corpus, [StateMean()])["state_mean"]
    torch.manual_seed(0)
    exact = BertModel(BertConfig(vocab_size=len(tokenizer), **shape)).to(dtype).double()
    expected = measure(load_model(exact, tokenizer=tokenizer), parallel_corpus, [StateMean()])["state_mean"]
    assert list(table["count"]) == list(expected["count"])
    np.testing.assert_allclose(table["value"], expected["value"], atol=3e-3 if dtype == torch.bfloat16 else 1e-5)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("name", ["shard.json", "measure-0.npz"])
@pytest.mark.parametrize("damage", [_cut, _flip, Path.unlink, _replace_by_folder, lambda path: path.write_bytes(b"")])
def test_a_damaged_shard_is_told(matched, parallel_corpus, tmp_path, name: str, damage) -> None:
    shards = [measure_shard(matched, parallel_corpus, [StateMean()], i, 2, tmp_path / str(i)) for i in range(2)]
    damage(shards[1] / name)
    with pytest.raises(
        UserError, match=r"is damaged .*1. is damaged|is damaged \(|holds no shard|different models"
    ) as told:
        merge_shards(matched, parallel_corpus, [StateMean()], shards, tmp_path / "merged")
    assert "Errno" not in str(told.value)


@pytest.mark.parametrize("manifest", ["[]", "3", "{}", '{"job": 1, "shard": "0", "num_shards": 2, "sha256": {}}'])
def test_a_manifest_of_another_form_is_told(matched, parallel_corpus, tmp_path, manifest: str) -> None:
    shard = measure_shard(matched, parallel_corpus, [StateMean()], 0, 1, tmp_path / "0")
    (shard / "shard.json").write_text(manifest)
    with pytest.raises(UserError, match=r"The shard .* is damaged \(shard\.json: .*run its shard again"):
        merge_shards(matched, parallel_corpus, [StateMean()], [shard], tmp_path / "merged")


@pytest.mark.parametrize(
    ("measures", "message"),
    [
        (["head_confidence"], r'must be objects.* Got "head_confidence"\.\n.*--only'),
        ("head_confidence", "must be objects"),
        ([StateMean], "Got the class StateMean"),
        ([StateMean(), None], "Got nothing"),
        (3, "Got 3"),
    ],
)
def test_anything_but_measures_is_refused(matched, parallel_corpus: Corpus, tmp_path, measures, message: str) -> None:
    given = (matched, parallel_corpus, measures)
    for run, more in ((measure, ()), (measure_shard, (0, 1, tmp_path)), (merge_shards, ([], tmp_path))):
        with pytest.raises(UserError, match=message):
            inspect.unwrap(run)(*given, *more)  # in tests beartype would speak first
