"""A real little training whose checkpoints are kept, for tests of series of checkpoints."""

import hashlib
import json
import shutil
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


def as_snapshots(folder: Path, home: Path, updates: tuple[int, ...]) -> Path:
    """Some of these checkpoints as a training of infoflow keeps them: `step-*`, with checksums in a manifest."""
    entries = []
    for update in updates:
        path = Path(shutil.copytree(folder / f"checkpoint-{update}", home / f"step-{update:08}"))
        (path / "trainer_state.json").unlink()
        files = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in path.iterdir()}
        rest = {"learning_rate": 0.1, "loss": 3.5, "dtype": "float32", "source_tokens": 1, "tokens": 10 * update}
        entries.append({"update": update, **rest, "files": files})
    (home / "manifest.json").write_text(json.dumps({"schedule": list(updates), "snapshots": entries}))
    return home
