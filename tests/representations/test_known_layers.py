"""Layers of compiled programs, whose content is known: probes, information, lens, allocation of the loss change."""

import numpy as np
import pytest
import torch
from support.compiled import SPECIAL, HeadProgram, Program, attention_of, compiled, sampled
from torch.func import functional_call

from infoflow.corpus import Corpus
from infoflow.dynamics import Cell, find_cells, loss_change_allocation
from infoflow.flow import measure
from infoflow.lenses import Lens
from infoflow.models import Model, tap
from infoflow.probing import ProbeSettings, online_codelength, probe_layers
from infoflow.representations import (
    MutualInformation,
    MutualInformationWithoutPosition,
    UsableInformation,
    logit_lens,
    usable_information,
)

WORDS, LENGTH = 8, 12
BITS = np.log2(WORDS)
# Without evidence the model writes words at random, so that no word says anything of another one.
MOVED = Program(
    layers=[
        [HeadProgram(attends="offset", offset=-3), HeadProgram(attends="offset", offset=0)],
        [HeadProgram(attends="offset", offset=-1), HeadProgram(attends="offset", offset=0)],
    ]
)
FIRST_READABLE = {0: 0, -3: 1, -1: 2}  # the token at this offset is in the stream from this state on
# Evidence of the first block's heads is 0, that of the others is for copies of the moved token.
SPOKEN = Program(
    layers=[
        [HeadProgram(attends="offset", offset=-1), HeadProgram(attends="even")],
        [HeadProgram(attends="after-same", evidence=3.0, copies=True), HeadProgram(attends="offset", offset=-2)],
        [HeadProgram(attends="even"), HeadProgram(attends="offset", offset=-3, evidence=2.0, copies=True)],
    ]
)


def words_of(sentences: list[str]) -> np.ndarray:
    """(sentence, word) numbers."""
    return np.array([[int(word[1:]) for word in sentence.split()] for sentence in sentences])


def ids_of(sentences: list[str]) -> torch.Tensor:
    words = torch.from_numpy(words_of(sentences)) + len(SPECIAL)
    return torch.cat([torch.zeros(len(words), 1, dtype=torch.long), words], dim=1)


def corpus_of(sentences: list[str], folder) -> Corpus:
    (folder / "text.txt").write_text("\n".join(sentences) + "\n")
    return Corpus.from_text(folder / "text.txt")


@pytest.fixture(scope="module")
def moved():
    model = compiled(MOVED)
    return model, sampled(model, MOVED, 500, 1)


@pytest.fixture(scope="module")
def spoken():
    model = compiled(SPOKEN)
    return model, sampled(model, SPOKEN, 300, 1)


@pytest.fixture(scope="module")
def read(moved):
    """States (example, state, width) from the fourth word on, words at each offset, and sentences."""
    model, sentences = moved
    with torch.no_grad(), tap(model, hidden=True) as seen:
        model.module(input_ids=ids_of(sentences))
    (layers,) = seen.hidden.values()
    states = torch.stack([state[:, 4:] for state in layers], dim=2).flatten(0, 1).numpy()
    words = words_of(sentences)
    at = {offset: words[:, 3 + offset : LENGTH + offset].ravel() for offset in FIRST_READABLE}
    return states, at, np.repeat(np.arange(len(words)), LENGTH - 3)


@pytest.mark.slow
@pytest.mark.parametrize("offset", FIRST_READABLE)
def test_probes_read_a_token_once_it_has_been_moved(read, offset):
    states, at, sentences = read
    settings = ProbeSettings(rate=0.02, epochs=8)
    scores = probe_layers(states, at[offset], sentences, settings=settings, seeds=(0,))
    rows = scores[(scores["metric"] == "accuracy") & (scores["labels"] == "task") & (scores["words"] == "all")]
    accuracy = rows.set_index("layer")["value"]
    code = online_codelength(states, at[offset], WORDS, groups=sentences, hidden=(), fractions=(0.2, 1.0))
    for layer in range(3):
        bits = code.data_bits[layer] / len(at[offset])
        if layer < FIRST_READABLE[offset]:
            assert accuracy[layer] == pytest.approx(1 / WORDS, abs=0.05)
            assert bits == pytest.approx(BITS, abs=0.1)
            assert code.bits[layer] > code.uniform_bits
        else:
            assert accuracy[layer] == 1
            assert bits < 0.1 * BITS
            assert code.bits[layer] < 0.5 * code.uniform_bits


@pytest.mark.parametrize("offset", FIRST_READABLE)
def test_usable_information_is_all_or_nothing(read, offset):
    states, at, sentences = read
    for layer in range(3):
        found = usable_information(states[:, layer], at[offset], sentences)
        expected = np.log(WORDS) if layer >= FIRST_READABLE[offset] else 0
        assert found == pytest.approx(expected, abs=0.03)


def test_every_layer_determines_its_token(moved, tmp_path):
    """And says nothing of the next one, which is random."""
    model, sentences = moved
    shares = np.bincount(words_of(sentences).ravel()) / (LENGTH * len(sentences))
    entropy = -(shares * np.log(shares)).sum()
    measures = [
        UsableInformation(),
        MutualInformation(clusters=200, clusterings=1),
        MutualInformationWithoutPosition(clusters=100),
    ]
    for name, table in measure(model, corpus_of(sentences, tmp_path), measures).items():
        of = {side: part.set_index("layer")["value"] for side, part in table.groupby("side")}
        assert of["input"].tolist() == pytest.approx([entropy] * 3, abs=2e-3), name
        assert of["output"].tolist() == pytest.approx([0] * 3, abs=0.03), name


def test_the_lens_adds_the_evidence_of_each_block(spoken):
    model, sentences = spoken
    own = model.module(input_ids=ids_of(sentences[:20])).logits.detach()[..., len(SPECIAL) :]
    with torch.no_grad():
        layers = [
            reading.logits.unflatten(0, own.shape[:2])[..., len(SPECIAL) :]
            for reading in logit_lens(model, ids_of(sentences[:20]))
        ]
    torch.testing.assert_close(layers[-1], own, atol=1e-6, rtol=0)
    assert layers[0].abs().max() < 1e-6
    for number, words in enumerate(words_of(sentences[:20])):
        copied = np.eye(WORDS + 1)[:, 1:][np.array([0, *(words + 1)])]  # (position, word); nothing for BOS
        for block, heads in enumerate(SPOKEN.layers):
            step = sum(
                each.evidence * attention_of(SPOKEN, block, head, words) @ copied for head, each in enumerate(heads)
            )
            np.testing.assert_allclose(layers[block + 1][number] - layers[block][number], step, atol=1e-5)


def test_the_lens_has_a_loss_of_chance_until_a_head_has_evidence(spoken, tmp_path):
    model, sentences = spoken
    table = measure(model, corpus_of(sentences, tmp_path), [Lens(tuned=False, held_out=0.9, evaluated=10_000)])["lens"]
    of = {metric: part.set_index("layer")["value"].tolist() for metric, part in table.groupby("metric")}
    assert of["loss"][:2] == pytest.approx([np.log(WORDS)] * 2, abs=1e-5)
    assert of["loss"][0] > of["loss"][2] + 0.1 > of["loss"][3] + 0.2
    assert (of["kl"][3], of["agreement"][3]) == pytest.approx((0, 1), abs=1e-6)


def loss_of(model: Model, sentences: list[str]):
    ids = ids_of(sentences)
    return lambda weights: functional_call(model.module, weights, kwargs={"input_ids": ids, "labels": ids}).loss


def without(model: Model, heads: list[tuple[int, int]]) -> dict[str, torch.Tensor]:
    """Weights in which what these heads moved goes nowhere."""
    weights = {name: value.detach().clone() for name, value in model.module.named_parameters()}
    size = model.module.config.n_embd // model.module.config.n_head
    for layer, head in heads:
        weights[f"transformer.h.{layer}.attn.c_proj.weight"][head * size : (head + 1) * size] = 0
    return weights


@pytest.mark.parametrize(
    ("missing", "helped"),
    [
        ([(1, 0)], {(1, 0)}),
        ([(layer, head) for layer in range(3) for head in range(2)], {(0, 0), (1, 0), (2, 1)}),
        ([(0, 1), (1, 1), (2, 0)], set()),
    ],
    ids=["induction", "all", "idle"],
)
def test_the_loss_change_lies_in_the_heads_that_matter(spoken, missing, helped):
    """From weights without these heads to the compiled ones."""
    model, sentences = spoken
    loss, start = loss_of(model, sentences[:20]), without(model, missing)
    end = without(model, [])
    allocation = loss_change_allocation(loss, start, end, splits=32)
    cells = find_cells(model.module, model.anatomy)
    found = dict(zip(cells.cells, cells.sums(allocation[name] for name in cells.names).tolist(), strict=True))
    change = float(loss(end) - loss(start))
    assert sum(found.values()) == pytest.approx(change, abs=2e-4)
    for cell, value in found.items():
        if cell in {Cell("output", "decoder", layer, "self", head) for layer, head in helped}:
            assert value < -0.02
        else:
            assert value == pytest.approx(0, abs=1e-6), cell
