"""Small models of the families of feed-forward layers, and a plain loop over a corpus with hooks of its own."""

from collections import Counter, defaultdict

import numpy as np
import torch
import transformers as t
from support import tiny_heads as tiny

from infoflow.models import load_model

WIDTH, NEURONS, LAYERS = 32, 48, 2
ENCODER, DECODER = "encoder", "decoder"


def opt(vocab):
    config = t.OPTConfig(
        vocab_size=vocab, hidden_size=WIDTH, word_embed_proj_dim=WIDTH, num_hidden_layers=LAYERS, ffn_dim=NEURONS,
        num_attention_heads=4, max_position_embeddings=256, init_std=0.4,
    )  # fmt: skip
    return t.OPTForCausalLM(config)


def bert(vocab):
    config = t.BertConfig(
        vocab_size=vocab, hidden_size=WIDTH, num_hidden_layers=LAYERS, intermediate_size=NEURONS,
        num_attention_heads=4, initializer_range=0.4,
    )  # fmt: skip
    return t.BertForMaskedLM(config)


def llama(vocab):
    config = t.LlamaConfig(
        vocab_size=vocab, hidden_size=WIDTH, num_hidden_layers=LAYERS, intermediate_size=NEURONS,
        num_attention_heads=4, num_key_value_heads=2, initializer_range=0.4,
    )  # fmt: skip
    return t.LlamaForCausalLM(config)


def gpt2(vocab):
    config = t.GPT2Config(
        vocab_size=vocab, n_embd=WIDTH, n_layer=LAYERS, n_head=4, n_inner=NEURONS, initializer_range=0.4
    )
    return t.GPT2LMHeadModel(config)


def albert(vocab):
    config = t.AlbertConfig(
        vocab_size=vocab, embedding_size=16, hidden_size=WIDTH, num_hidden_layers=LAYERS, intermediate_size=NEURONS,
        num_attention_heads=4, initializer_range=0.4,
    )  # fmt: skip
    return t.AlbertForMaskedLM(config)


def phi3(vocab):
    """One projection for the gate and the other factor."""
    config = t.Phi3Config(
        vocab_size=vocab, hidden_size=WIDTH, num_hidden_layers=LAYERS, intermediate_size=NEURONS,
        num_attention_heads=4, num_key_value_heads=2, initializer_range=0.4, pad_token_id=0,
    )  # fmt: skip
    return t.Phi3ForCausalLM(config)


def by_function(vocab):
    """Its nonlinearity is a function, not a module."""
    module = bert(vocab)
    for layer in module.bert.encoder.layer:
        del layer.intermediate.intermediate_act_fn
        layer.intermediate.intermediate_act_fn = torch.nn.functional.gelu
    return module


def marian(vocab):
    config = t.MarianConfig(
        vocab_size=vocab, d_model=WIDTH, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_ffn_dim=NEURONS,
        decoder_ffn_dim=NEURONS, encoder_attention_heads=4, decoder_attention_heads=4, init_std=0.4, pad_token_id=0,
        decoder_start_token_id=0, eos_token_id=2, activation_function="relu",
    )  # fmt: skip
    return t.MarianMTModel(config)


def t5(vocab):
    config = t.T5Config(
        vocab_size=vocab, d_model=WIDTH, d_kv=8, d_ff=NEURONS, num_layers=LAYERS, num_heads=4,
        feed_forward_proj="gated-gelu", pad_token_id=0, decoder_start_token_id=0, eos_token_id=2,
        initializer_factor=3.0,
    )  # fmt: skip
    return t.T5ForConditionalGeneration(config)


# The module of each layer whose output, here or after `after`, is above zero where a neuron is active.
GATES = {
    opt: {DECODER: "model.decoder.layers.{}.fc1"},
    bert: {ENCODER: "bert.encoder.layer.{}.intermediate.dense"},
    llama: {DECODER: "model.layers.{}.mlp.gate_proj"},
    gpt2: {DECODER: "transformer.h.{}.mlp.c_fc"},
    albert: {ENCODER: "albert.encoder.albert_layer_groups.0.albert_layers.0.ffn"},
    phi3: {DECODER: "model.layers.{}.mlp.gate_up_proj"},
    by_function: {ENCODER: "bert.encoder.layer.{}.intermediate.dense"},
    marian: {ENCODER: "model.encoder.layers.{}.fc1", DECODER: "model.decoder.layers.{}.fc1"},
    t5: {
        ENCODER: "encoder.block.{}.layer.1.DenseReluDense.wi_0",
        DECODER: "decoder.block.{}.layer.2.DenseReluDense.wi_0",
    },
}


def loaded(family, corpus, seed=0):
    tokenizer = tiny.tokenizer_of(corpus)
    torch.manual_seed(seed)
    return load_model(family(len(tokenizer)), tokenizer=tokenizer, device="cpu")


def bin_of(position):
    """Single positions below 64; above, eight bins from each power of two to the next."""
    low = 64
    while position >= 2 * low:
        low *= 2
    return position if position < 64 else (low, (position - low) * 8 // low)


class PlainLoop:
    """One sentence at a time without padding; every neuron, token and position in a dictionary."""

    def __init__(self, family, model, corpus, decoder=False, max_length=512):
        self.active = defaultdict(lambda: defaultdict(Counter))  # (stack, layer) → neuron → token
        self.at = defaultdict(lambda: defaultdict(Counter))  # the same → position
        self.tokens, self.positions = defaultdict(Counter), defaultdict(Counter)
        self.with_ngrams = defaultdict(lambda: defaultdict(Counter))  # (stack, layer, order) → neuron → n-gram
        self.ngrams = defaultdict(Counter)  # (stack, order) → n-gram
        self.sizes, self.seen = {}, {}
        reader = tiny.reader_of(model, corpus, decoder=decoder, max_length=max_length)
        handles = [
            model.module.get_submodule(path.format(layer)).register_forward_hook(self._hook(stack, layer, path))
            for stack, path in GATES[family].items()
            for layer in (range(LAYERS) if "{" in path else [0])
        ]
        for row in reader.rows.tolist():
            self._sentence(model, reader.padded(np.array([row])))
        for handle in handles:
            handle.remove()

    def _hook(self, stack, layer, path):
        def hook(module, args, output):
            number = layer if "{" in path else len(self.seen)
            self.seen[stack, number] = output.reshape(-1, output.shape[-1])

        return hook

    def _sentence(self, model, batch):
        self.seen.clear()
        given = {"input_ids": batch.streams[next(iter(batch.streams))].input_ids}
        if model.task == "seq2seq":
            given["decoder_input_ids"] = batch.streams[DECODER].input_ids
        with torch.no_grad():
            model.module(**given)
        for (stack, layer), values in self.seen.items():
            stream = batch.streams[stack]
            values = values[:, :NEURONS] if type(model.module).__name__ == "Phi3ForCausalLM" else values
            self.sizes[stack, layer] = values.shape[1]
            for position in range(stream.input_ids.shape[1]):
                if not stream.valid[0, position]:
                    continue
                token, place = int(stream.input_ids[0, position]), bin_of(position)
                if layer == 0:
                    self.tokens[stack][token] += 1
                    self.positions[stack][place] += 1
                on = np.flatnonzero((values[position] > 0).numpy()).tolist()
                for order in (2, 3):
                    at = range(max(0, position - order + 1), position + 1)
                    ngram = tuple(int(stream.input_ids[0, i]) for i in at if stream.valid[0, i])
                    self.ngrams[stack, order][ngram] += layer == 0
                    for neuron in on:
                        self.with_ngrams[stack, layer, order][neuron][ngram] += 1
                for neuron in on:
                    self.active[stack, layer][neuron][token] += 1
                    self.at[stack, layer][neuron][place] += 1

    def dead(self, stack, layer):
        return [n for n in range(self.sizes[stack, layer]) if not self.active[stack, layer][n]]

    def detectors(self, stack, layer, order=1):
        """Section 4.2 of the paper, and ten occurrences."""
        found, of_neurons, occurrences = {}, self.active[stack, layer], self.tokens[stack]
        if order > 1:
            of_neurons, occurrences = self.with_ngrams[stack, layer, order], self.ngrams[stack, order]
        for neuron, counts in of_neurons.items():
            covering, total = [], sum(counts.values())
            if not total:
                continue
            for token, count in counts.most_common():
                if sum(c for _, c in covering) >= 0.95 * total:
                    break
                covering.append((token, count))
            kept = [
                (token, count)
                for token, count in covering
                if count >= 0.95 * occurrences[token] and occurrences[token] >= 10
            ]
            if len(covering) <= 5 and sum(count for _, count in kept) >= 0.95 * total:
                found[neuron] = {token for token, _ in kept}
        return found

    def information(self, stack, layer, neuron):
        """The paper's formula with the positions' own weights, and the bias of the plug-in estimate."""
        sizes, own = self.positions[stack], self.at[stack, layer][neuron]
        total, whole = sum(sizes.values()), sum(own.values())
        if whole in (0, total):
            return 0.0
        nats = -(len(sizes) - 1) / (2 * total)
        for position, size in sizes.items():
            share, mean = own[position] / size, whole / total
            for here, everywhere in ((share, mean), (1 - share, 1 - mean)):
                nats += size / total * here * np.log(here / everywhere) if here > 0 else 0.0
        return nats
