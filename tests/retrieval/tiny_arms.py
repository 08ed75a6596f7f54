"""Arms of retrieval small enough for tests."""

from functools import cache

from infoflow.architectures import ModelConfig, build
from infoflow.corpus import FactConfig, Vocabulary, generate_facts
from infoflow.objectives import SOURCES, make_objective, retrieval_model
from infoflow.retrieval import Library, Passages, build_retriever, retriever_config
from infoflow.training import TrainConfig, TrainingData, fact_query_rows

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


def tiny_retriever(reader=None, **options):
    config = retriever_config((reader or tiny_reader()).config, **{"vector_width": 8, **options})
    return build_retriever(config, seed=1)


def tiny_arm(name: str, retriever_options=None, **options):
    """An arm's objective and model."""
    objective, reader = make_objective(name, **options), tiny_reader()
    retriever = tiny_retriever(reader, **(retriever_options or {})) if SOURCES[name] in ("frozen", "learned") else None
    library = None if name == "closed-book" else tiny_library()
    return objective, retrieval_model(objective, reader, library, retriever)


def tiny_config(**changes) -> TrainConfig:
    settings = {"updates": 8, "batch_tokens": 10_000, "batch_sentences": 12, "micro_tokens": 100, "log_every": 1}
    return TrainConfig(**{**settings, "save_every": 3, "device": "cpu", "learning_rate": 1e-2, **changes})
