"""A real little training whose checkpoints are kept, for tests of series of checkpoints."""

import json
from pathlib import Path

STEPS = (0, 2, 4, 6, 9, 13, 19, 27, 38, 50)
"""Updates that are kept."""


def train_series(folder: Path, seed: int = 0) -> None:
    """`checkpoint-*` folders of a causal LM of 2 layers and width 16, trained for 50 updates on the grammar."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from infoflow.corpus import generate_grammar, train_tokenizer

    corpus = generate_grammar(200)
    tokenizer = train_tokenizer((sentence.text for sentence in corpus), vocab_size=80)
    ids = [tokenizer(sentence.text)["input_ids"][:16] for sentence in corpus]
    ids = torch.tensor([one for one in ids if len(one) == 16])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = GPT2Config(vocab_size=len(tokenizer), n_positions=64, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0,
                            embd_pdrop=0, attn_pdrop=0, pad_token_id=tokenizer.pad_token_id,
                            bos_token_id=None, eos_token_id=None)  # fmt: skip
        model = GPT2LMHeadModel(config)
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        for update in range(STEPS[-1] + 1):
            if update in STEPS:
                _keep(model, tokenizer, folder / f"checkpoint-{update}", update, update * ids.numel())
            loss = model(input_ids=ids, labels=ids).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def _keep(model, tokenizer, folder: Path, update: int, tokens: int) -> None:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    state = {"global_step": update, "max_steps": STEPS[-1], "num_input_tokens_seen": tokens, "log_history": []}
    (folder / "trainer_state.json").write_text(json.dumps(state))
