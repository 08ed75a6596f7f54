# %% [markdown]
# # Attention of one sentence, and how it mixes over layers
#
# A causal LM of random weights: what its heads do with a sentence, how spread they are, and rollout over layers.

# %%
import pandas as pd
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import infoflow
from infoflow.corpus import train_tokenizer

infoflow.set_display("silent")
sentences = [sentence.text for sentence in infoflow.load_corpus("grammar:400")]
tokenizer = train_tokenizer(sentences, 200)
torch.manual_seed(0)
config = GPT2Config(
    vocab_size=len(tokenizer), n_embd=32, n_layer=3, n_head=4, n_positions=64, bos_token_id=2, eos_token_id=3
)
model = infoflow.load_model(GPT2LMHeadModel(config), tokenizer, "cpu")
model

# %% [markdown]
# One sentence as the model reads it; in a notebook `infoflow.view(model, sentence)` draws it:

# %%
attention = infoflow.heads.sentence_attention(model, sentences[0])
print(repr(attention))

# %% [markdown]
# How spread is each head? Entropy of their attention over the corpus, in nats, beside uniform attention:

# %%
corpus = infoflow.load_corpus("grammar:200")
tables = infoflow.measure(model, corpus, [infoflow.heads.Entropy(), infoflow.heads.PositionalScores()])
infoflow.plot(tables["head_entropy"])

# %% [markdown]
# How far has attention mixed the tokens, if it is multiplied over layers with the residual stream counted in? Take any
# weights, layers first; here those of uniform causal attention over five tokens. What is left of its own token
# at each position, by layer:

# %%
uniform = torch.tril(torch.ones(5, 5))
weights = (uniform / uniform.sum(-1, keepdim=True)).expand(3, 1, 1, 5, 5)
rolled = infoflow.heads.attention_rollout(weights)
own = rolled[:, 0].diagonal(dim1=-2, dim2=-1)
pd.DataFrame(own.numpy().round(3), index=[f"layer {n}" for n in range(3)], columns=[f"token {n}" for n in range(5)])
