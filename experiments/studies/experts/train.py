"""A small mixture of experts, trained to predict the next token of generated sentences.

python experiments/studies/experts/train.py mixture
infoflow analyze mixture --corpus grammar:4000 --sentences 1000 --only expert_routing --out experts
"""

import sys
from pathlib import Path

import numpy as np
import torch
from transformers import MixtralConfig, MixtralForCausalLM, get_cosine_schedule_with_warmup

from infoflow import load_corpus
from infoflow.corpus import train_tokenizer

SENTENCES, VOCABULARY, UPDATES, BATCH = 8000, 1000, 500, 48


def main(folder: Path) -> None:
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    texts = list(load_corpus(f"grammar:{SENTENCES}").column("text"))
    tokenizer = train_tokenizer(texts, VOCABULARY)
    config = MixtralConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=4, num_local_experts=4, num_experts_per_tok=1, max_position_embeddings=128,
        router_aux_loss_coef=0.02, output_router_logits=True,
    )  # fmt: skip
    model = MixtralForCausalLM(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = get_cosine_schedule_with_warmup(optimizer, 50, UPDATES)
    for update in range(UPDATES):
        chosen = [texts[row] for row in draw.integers(len(texts), size=BATCH)]
        batch = tokenizer(chosen, padding=True, return_tensors="pt")
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        loss = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if (update + 1) % 100 == 0:
            print(f"update {update + 1}: loss {loss.item():.3f}", flush=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
