"""ELMo: two directions side by side that never meet, read from disk again, measured without heads."""

import numpy as np
import pytest
import torch
from objectives.zoo import VOCABULARY, framed, mixed

from infoflow.architectures import ModelConfig, build
from infoflow.corpus import Vocabulary, load_corpus, train_tokenizer
from infoflow.flow import measure
from infoflow.foundation import UserError, stream
from infoflow.heads import Confidence
from infoflow.lenses import Lens
from infoflow.models import load_model, tap
from infoflow.objectives import BiLM, Example
from infoflow.probing import AttentionProbe
from infoflow.representations import IdentityNeighbours, InfluenceByFrequency, IntraSentence, WordNeighbours

SHAPE = ModelConfig(width=12, layers=6, heads=2, feedforward=20, positions=64)
WIDTH = 12


def model(seed: int = 0, shape: ModelConfig = SHAPE, vocabulary: Vocabulary = VOCABULARY):
    module = build("elmo", "bidirectional-pair", shape, vocabulary, seed=seed).eval()
    with torch.no_grad():
        module.embeddings.weight.mul_(20)
    return module


def lstm_by_hand(lstm, inputs: np.ndarray) -> np.ndarray:
    """Gates, cell, projection, a token at a time."""
    get = {name: value.detach().double().numpy() for name, value in lstm.named_parameters()}
    state, cell, states = np.zeros(WIDTH), np.zeros(20), []
    for x in inputs:
        gates = get["weight_ih_l0"] @ x + get["bias_ih_l0"] + get["weight_hh_l0"] @ state + get["bias_hh_l0"]
        i, f, g, o = np.split(gates, 4)
        i, f, o = (1 / (1 + np.exp(-each)) for each in (i, f, o))
        cell = f * cell + i * np.tanh(g)
        state = get["weight_hr_l0"] @ (o * np.tanh(cell))
        states.append(state)
    return np.array(states)


@torch.no_grad()
def test_states_are_those_of_lstms_written_out() -> None:
    module, text = model(), mixed(9, 1)
    found = module(torch.tensor(text[None]), output_hidden_states=True).hidden_states
    ahead = back = module.embeddings.weight.double().numpy()[text]
    np.testing.assert_allclose(found[0][0].numpy(), np.concatenate([ahead, back], axis=1), atol=1e-6)
    for index, layer in enumerate(module.layers):
        one, other = lstm_by_hand(layer.ahead.lstm, ahead), lstm_by_hand(layer.back.lstm, back[::-1])[::-1]
        ahead, back = (one + ahead, other + back) if index else (one, other)
        np.testing.assert_allclose(found[index + 1][0].numpy(), np.concatenate([ahead, back], axis=1), atol=1e-5)
    assert len(module.layers) == 2


@torch.no_grad()
def test_a_text_has_the_states_that_it_has_alone_and_both_ways_are_their_halves() -> None:
    module, texts = model(), [mixed(20, 1), mixed(3, 2), framed(10)]
    batch = BiLM().collate(
        [BiLM().corrupt(Example(texts=(text,)), stream("elmo"), VOCABULARY) for text in texts], VOCABULARY
    )
    states = module(batch.input_ids, batch.attention_mask).last_hidden_state
    ahead, back = module.both_ways(batch.input_ids, batch["reversed_ids"])
    for row, text in enumerate(texts):
        alone = module(torch.tensor(text[None])).last_hidden_state[0]
        torch.testing.assert_close(states[row, : len(text)], alone)
        torch.testing.assert_close(ahead[row, : len(text)], alone[:, :WIDTH])
        torch.testing.assert_close(back[row, : len(text)].flip(0), alone[:, WIDTH:])


@torch.no_grad()
def test_no_layer_mixes_directions() -> None:
    module, text, place = model(), mixed(10, 4), 5
    other = text.copy()
    other[place] = 10 if text[place] != 10 else 11
    layers = [module(torch.tensor(ids[None]), output_hidden_states=True).hidden_states for ids in (text, other)]
    for one, two in zip(*layers, strict=True):
        changed = (one != two)[0]
        if one is layers[0][0]:
            continue
        assert changed[:, :WIDTH].any(-1).tolist() == [t >= place for t in range(12)]
        assert changed[:, WIDTH:].any(-1).tolist() == [t <= place for t in range(12)]


def test_its_loss_teaches_all_of_it() -> None:
    module = model()
    batch = BiLM().collate([BiLM().corrupt(Example(texts=(mixed(9),)), stream("elmo"), VOCABULARY)], VOCABULARY)
    terms = BiLM().loss(module, batch, batch.noise)
    sum(term.total for term in terms.values()).backward()
    assert [name for name, p in module.named_parameters() if p.grad is None or not p.grad.any()] == []
    assert BiLM().exported(module) is module


@pytest.fixture(scope="module")
def corpus():
    return load_corpus("grammar:200")


@pytest.fixture(scope="module")
def folder(corpus, tmp_path_factory):
    tokenizer = train_tokenizer(corpus.column("text"), 150)
    home = tmp_path_factory.mktemp("elmo")
    model(vocabulary=Vocabulary.from_tokenizer(tokenizer)).save_pretrained(home)
    tokenizer.save_pretrained(home)
    return home


@torch.no_grad()
def test_it_is_read_from_disk_again_and_tapped(folder) -> None:
    loaded, ids = load_model(folder, device="cpu"), torch.tensor([[2, 7, 9, 3]])
    assert loaded.task == "encoder"
    assert loaded.max_tokens == 64
    assert not list(loaded.anatomy.attentions())
    expected = loaded.module(ids, output_hidden_states=True).hidden_states
    with tap(loaded, hidden=True) as seen:
        loaded.module(ids)
    assert all(torch.equal(a, b) for a, b in zip(seen.hidden["encoder"], expected, strict=True))
    assert loaded.anatomy.stacks[0].width == expected[1].shape[-1] == 2 * WIDTH
    assert loaded.anatomy.num_parameters("other") == 0


def test_its_states_are_measured_and_heads_are_left_out_for_the_true_reason(folder, corpus) -> None:
    loaded = load_model(folder, device="cpu")
    wanted = [IdentityNeighbours(k=5, occurrences=200), IntraSentence(), WordNeighbours(words=4, pool=100)]
    refused = [Confidence(), AttentionProbe(), Lens(), InfluenceByFrequency()]
    found = measure(loaded, corpus, [*wanted, *refused])
    assert set(found) == {one.name for one in wanted}
    assert set(found["identity_neighbours"]["layer"]) == {0, 1, 2}
    with pytest.raises(UserError, match="its layers have no attention, so it has no heads"):
        measure(loaded, corpus, [Confidence()])
