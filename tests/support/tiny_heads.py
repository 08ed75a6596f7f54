"""Tiny models and batches for the tests of heads, and a slow way to run a measure."""

from dataclasses import replace
from unittest.mock import Mock

import torch
from transformers import BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM

from infoflow.corpus import generate_grammar, train_tokenizer
from infoflow.flow import Activations, Reader, Stream, forward
from infoflow.models import load_model, tap


def trees(num=40, seed=0):
    """Sentences with gold trees."""
    return generate_grammar(num, seed=seed)


def tokenizer_of(corpus, size=150):
    """Few subwords, so that most words have several."""
    return train_tokenizer((sentence.text for sentence in corpus), vocab_size=size)


def bert(corpus, seed=0, size=150, layers=2, heads=3, **changes):
    tokenizer = tokenizer_of(corpus, size)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=12 * heads, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=32, max_position_embeddings=256, initializer_range=0.3, **changes,
    )  # fmt: skip
    return load_model(BertForMaskedLM(config), tokenizer=tokenizer)


def llama(corpus, seed=0, size=150):
    """Causal, with grouped heads."""
    tokenizer = tokenizer_of(corpus, size)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=32, max_position_embeddings=256, initializer_range=0.3,
    )  # fmt: skip
    return load_model(LlamaForCausalLM(config), tokenizer=tokenizer)


def reader_of(model, corpus, decoder=False, **options):
    return Reader(model, corpus, max_length=options.pop("max_length", 256), seed=0, decoder=decoder, **options)


def batch_of(reader, rows, left=False):
    """One batch's activations; `left` moves the padding (weights and all) to the left."""
    model = reader.model
    batch = reader.padded(rows)
    with torch.inference_mode(), tap(model, attention=True) as seen:
        forward(model, batch)
        attention = {key: [weights.clone() for weights in layers] for key, layers in seen.attention.items()}
    streams = dict(batch.streams)
    result = Activations(
        model=model, regime="clean", sentence_ids=batch.sentence_ids, blocks=batch.blocks, streams=streams,
        attention=attention,
    )  # fmt: skip
    return _left(result) if left else result


def _left(given):
    shifts = {name: (~stream.real).sum(1).tolist() for name, stream in given.streams.items()}
    streams = {name: _roll(stream, shifts[name]) for name, stream in given.streams.items()}
    attention = {}
    for (stack, kind), layers in given.attention.items():
        source = shifts["encoder" if kind == "cross" else stack]
        attention[stack, kind] = [
            torch.stack([w.roll((q, k), (1, 2)) for w, q, k in zip(weights, shifts[stack], source, strict=True)])
            for weights in layers
        ]
    return replace(given, streams=streams, attention=attention)


def _roll(stream, shifts):
    columns = {name: getattr(stream, name) for name in Stream.__dataclass_fields__}
    return Stream(
        **{
            name: torch.stack([row.roll(n) for row, n in zip(values, shifts, strict=True)])
            for name, values in columns.items()
        }
    )


def run(measure, reader, batches, left=False):
    """The measure's table after these batches of rows."""
    measure.prepare(reader)
    for rows in batches:
        measure.update(batch_of(reader, rows, left))
    return measure.table.conform(measure.result())


def without_model(activations):
    """For measures that look at nothing of the model but its anatomy."""
    return replace(activations, model=Mock(anatomy=activations.model.anatomy))
