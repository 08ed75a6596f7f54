"""Peak memory and seconds of attention statistics on one text of many tokens, in a small model with random weights.

python experiments/studies/long-texts/memory.py 8192      # prints one line; repeat with 16384, 32768
"""

import resource
import sys
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from infoflow import load_corpus, load_model, measure
from infoflow.corpus import train_tokenizer
from infoflow.flow import PassOptions
from infoflow.heads import AttentionByDistance, Confidence

LAYERS, HEADS, WIDTH, VOCABULARY = 2, 4, 64, 1000


def main(tokens: int) -> None:
    texts = list(load_corpus("tatoeba-en-fr").column("text"))[: tokens // 2]
    tokenizer = train_tokenizer(texts, VOCABULARY, max_length=tokens)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=WIDTH, intermediate_size=WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, max_position_embeddings=tokens,
    )  # fmt: skip
    model = load_model(LlamaForCausalLM(config), tokenizer=tokenizer)
    before, began = _peak(), time.process_time()
    tables = measure(
        model, load_corpus([" ".join(texts)]), [AttentionByDistance(), Confidence()], PassOptions(max_length=tokens)
    )
    queries = tables["head_by_distance"].query("to == 'first token'").groupby(["layer", "head"])["count"].sum()
    whole = 4 * LAYERS * HEADS * tokens**2 / 1e6
    print(
        f"{int(queries.max()):,} tokens: {time.process_time() - began:.0f} CPU seconds, {before:,.0f} MB before, "
        f"{_peak():,.0f} MB at most; whole attention would take {whole:,.0f} MB"
    )


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # MB on Linux


if __name__ == "__main__":
    main(int(sys.argv[1]))
