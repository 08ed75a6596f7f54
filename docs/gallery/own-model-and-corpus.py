# %% [markdown]
# # Your own model and corpus
#
# A model is a folder that `save_pretrained` wrote, a name on the hub, or an instance; here one of random weights, built
# on the spot, so that nothing has to be there. A corpus is a text file with a sentence on each line; here the built-in
# grammar writes it.

# %%
import torch
from transformers import BertConfig, BertForMaskedLM

import infoflow
from infoflow.corpus import train_tokenizer

infoflow.set_display("silent")
sentences = [sentence.text for sentence in infoflow.load_corpus("grammar:400")]
with open("my-corpus.txt", "w", encoding="utf-8") as file:
    file.write("\n".join(sentences))
tokenizer = train_tokenizer(sentences, 200)
torch.manual_seed(0)
config = BertConfig(
    vocab_size=len(tokenizer),
    hidden_size=32,
    num_hidden_layers=4,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=64,
    pad_token_id=tokenizer.pad_token_id,
)
BertForMaskedLM(config).save_pretrained("my-model")
tokenizer.save_pretrained("my-model")
print("my-model, my-corpus.txt")

# %%
model = infoflow.load_model("my-model")
model

# %%
corpus = infoflow.load_corpus("my-corpus.txt")
corpus

# %% [markdown]
# Any number of measures in one pass over the corpus:

# %%
measures = [infoflow.heads.Confidence(), infoflow.heads.PositionalScores(), infoflow.representations.LayerDistance()]
tables = infoflow.measure(model, corpus, measures)
tables["head_confidence"]

# %% [markdown]
# A table becomes the figure that the report would draw of it. These weights have learned nothing, so heads look
# everywhere alike, and the baseline is as high:

# %%
infoflow.plot(tables["head_confidence"])

# %% [markdown]
# Two models, or the same on two corpora, side by side:

# %%
half = infoflow.measure(model, corpus.select(range(len(corpus) // 2)), measures)
infoflow.plot({"all sentences": tables["layer_distance"], "half of them": half["layer_distance"]})
