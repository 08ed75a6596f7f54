# %% [markdown]
# # A study from end to end
#
# A study trains models that differ in nothing but their objective, measures them beside untrained twins, and checks
# published claims. This one is as small as it can be: two objectives, generated sentences, two layers. Its numbers say
# nothing about language; its steps are those of the largest study.

# %%
import infoflow

infoflow.set_display("silent")
with open("tiny.toml", "w", encoding="utf-8") as file:
    file.write("""
title = "A tiny study"
objectives = ["causal-lm", "masked-lm"]
[corpus]
name = "grammar:1000"
vocabulary = 150
validation = 0.1
test = 0.2
[model]
width = 32
layers = 2
heads = 4
feedforward = 64
[training]
updates = 60
[analysis]
tables = ["layer_distance", "head_confidence", "head_positional"]
""")
run = infoflow.study("tiny.toml", out="tiny")
run

# %% [markdown]
# ## Have the models learned?
#
# Every score stands beside a guess that knows frequencies alone:

# %%
run.tables["task_scores"]

# %% [markdown]
# ## A figure
#
# Figures have the names of their room and of what is drawn:

# %%
list(run.figures)

# %%
figure = run.figures["representations/layer-distance"]
figure

# %% [markdown]
# What it says, and the numbers behind it:

# %%
print(figure.answer)
figure.data.head(3)

# %% [markdown]
# One line gives a file for a paper, a column wide:

# %%
print(figure.save("layer-distance.pdf", width=3.3))

# %% [markdown]
# ## Claims
#
# With one seed and such models most claims cannot be tested; the table says why:

# %%
run.findings
