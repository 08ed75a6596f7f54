"""Arms of retrieval small enough for tests."""

import math
from functools import cache

import numpy as np
import torch

from infoflow.architectures import ModelConfig, build
from infoflow.corpus import FactConfig, Vocabulary, generate_facts
from infoflow.objectives import UNSUPERVISED, make_objective
from infoflow.retrieval import NULL, Library, Passages, build_retriever, retriever_config
from infoflow.subjects.retrieval.objectives import SOURCES, retrieval_model
from infoflow.subjects.retrieval.training import fact_query_rows
from infoflow.training import TrainConfig, TrainingData

SHAPE = ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=64, dropout=0.0)
ARMS = tuple(SOURCES)


@cache
def tiny_world():
    """A world of a dozen entities, its tokenizer and vocabulary."""
    world = generate_facts(FactConfig(entities=12, relations=4, objects=4, weights=(1, 2)))
    tokenizer = world.tokenizer()
    return world, tokenizer, Vocabulary.from_tokenizer(tokenizer)


def tiny_library(**options) -> Library:
    world, tokenizer, _ = tiny_world()
    return Library(Passages.from_rows(world.passages()), tokenizer, **options)


@cache
def tiny_rows():
    world, tokenizer, _ = tiny_world()
    return fact_query_rows(world, tokenizer, tiny_library())


def tiny_data() -> TrainingData:
    return TrainingData(source=tiny_rows(), vocabulary=tiny_world()[2])


def tiny_reader(seed: int = 0):
    return build("bert", "encoder", SHAPE, tiny_world()[2], seed=seed)


def tiny_writer(seed: int = 0):
    """An encoder-decoder whose encoder is that of `tiny_reader`."""
    return build("bert", "encoder-decoder", SHAPE, tiny_world()[2], seed=seed)


def tiny_retriever(reader=None, **options):
    config = retriever_config((reader or tiny_reader()).config, **{"vector_width": 8, **options})
    return build_retriever(config, seed=1)


def tiny_arm(name: str, retriever_options=None, writes: bool = False, **options):
    """An arm's objective and model."""
    objective, reader = make_objective(name, **options), tiny_reader()
    retriever = tiny_retriever(reader, **(retriever_options or {})) if SOURCES[name] in ("frozen", "learned") else None
    library = None if name == "closed-book" else tiny_library()
    return objective, retrieval_model(objective, tiny_writer() if writes else reader, library, retriever)


def tiny_config(**changes) -> TrainConfig:
    settings = {"updates": 8, "batch_tokens": 10_000, "batch_sentences": 12, "micro_tokens": 100, "log_every": 1}
    return TrainConfig(**{**settings, "save_every": 3, "device": "cpu", "learning_rate": 1e-2, **changes})


def candidates_by_hand(objective, model, x, gold, draw):
    """Ids and logits of one query's candidates; the null passage last."""
    zero = torch.zeros((), dtype=torch.float64)
    library, source = model.passage_library, model.source
    if source == "none":
        return [NULL], [zero]
    if source == "gold":
        ids, scores = ([gold], [zero]) if gold != NULL else ([], [])
        return [*ids, NULL], [*scores, model.null_logit]
    if source == "random":
        others = [id for id in range(len(library)) if id != gold]
        return [others[draw % len(others)], NULL], [zero, model.null_logit]
    special = library.vocabulary.is_special
    if source == "bm25":
        raw = library.lexical.scores(x[torch.from_numpy(~special[x])].tolist())
        ids = [id for id in np.lexsort((np.arange(len(raw)), -raw)).tolist() if raw[id] > 0][: objective.k]
        scores = [model.scale.exp() * torch.tensor(raw[id]) for id in ids]
        return [*ids, NULL], [*scores, model.null_logit]

    def score(id):
        tokens, segments = (torch.from_numpy(part)[None] for part in library.encoded(id))
        query = model.retriever.queries(x[None])[0]
        passage = model.retriever.passages(tokens, token_type_ids=segments)[0]
        return query @ passage / math.sqrt(len(query))

    every = torch.stack([score(id) for id in range(len(library))])
    ids = every.argsort(descending=True).tolist()[: objective.k]
    if source == "learned":
        return [*ids, NULL], [*every[ids], score(NULL)]
    return [*ids, NULL], [*(model.scale.exp() * every[ids].detach()), model.null_logit]


def with_passage(model, x, id):
    """A query with a passage behind it, without padding, and its segments."""
    z = torch.from_numpy(model.passage_library.body(int(id))) if id != NULL else x.new_empty(0)
    return torch.cat([x, z, x[-1:]]), torch.tensor([0] * len(x) + [1] * (len(z) + 1))


def summed_out(prior, likely, level):
    """log p of an answer, from the prior (candidate,) and the log-probabilities of its tokens (candidate, token)."""
    if level == "sequence":
        return (prior * likely.sum(dim=1).exp()).sum().log()
    return (prior[:, None] * likely.exp()).sum(dim=0).log().sum()


def marginal_by_hand(objective, model, batch, likelihood):
    """−log p(y|x), query by query and candidate by candidate, without padding: the definition.

    `likelihood` gives log p of each token of an answer from reader, tokens, segments and the words asked for.
    """
    total = 0.0
    for row in range(len(batch)):
        x = batch.input_ids[row][batch.real[row]]
        labels = batch.labels[row][batch.real[row]]
        gold, draw, null_only = (batch[name][row].item() for name in ("gold", "draw", "null_only"))
        ids, scores = candidates_by_hand(objective, model, x, gold, draw)
        if null_only:
            ids, scores = [NULL], [scores[-1]]
        answer = labels[labels != UNSUPERVISED].tolist()
        likely = torch.stack([likelihood(model.reader, *with_passage(model, x, id), answer) for id in ids])
        total = total - summed_out(torch.stack(list(scores)).softmax(dim=0), likely, objective.level)
    return total
