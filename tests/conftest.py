"""What tests of several rooms share. Imports of infoflow stay inside fixtures: the hook that checks it comes first."""

import fcntl
import gc
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from support import typecheck
from support.checkpoint_series import train_series
from support.undrawn import undrawn

typecheck.install("infoflow")
settings.register_profile("untimed", deadline=None, max_examples=30)  # a busy machine is no failure
settings.load_profile("untimed")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_configure(config: pytest.Config) -> None:
    config.option.loadscopereorder = False  # xdist keeps the order below


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without slow tests, files of slow tests alone are not imported."""
    if config.option.markexpr != "not slow" or collection_path.suffix != ".py":
        return None
    marked = re.search(r"^pytestmark = .*\bslow\b", collection_path.read_text(encoding="utf-8"), re.MULTILINE)
    return True if marked else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Studies first: one process takes a whole file, and none should begin a long one when the others are done."""
    items.sort(key=lambda item: "studies" not in item.path.parts)


def pytest_collection_finish() -> None:
    """What has been imported stays: each search for garbage looked through all of it, a twelfth of the tests' time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def pytest_runtest_setup() -> None:
    typecheck.begin()


@pytest.fixture(scope="session", autouse=True)
def _as_stages_run():
    import torch

    from infoflow.foundation import keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()


@pytest.fixture(scope="session", autouse=True)
def _no_wait_for_disks() -> Iterator[None]:
    """Files are for this process and those after it, which need not wait until a disk has them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: os.fstat(descriptor) and None)  # still refused where it is closed
        yield


@pytest.fixture(scope="session", autouse=True)
def _cache_folder(tmp_path_factory):
    """Tests never touch the user's cache."""
    os.environ["INFOFLOW_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def built_once(tmp_path_factory) -> Callable[[str, Callable[[Path], object]], Path]:
    """A folder that takes long to build, built by whichever process asks first; only read from then on."""

    def folder(name: str, build: Callable[[Path], object]) -> Path:
        base = tmp_path_factory.getbasetemp()
        shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
        with shared.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not shared.with_suffix(".done").exists():
                shutil.rmtree(shared, ignore_errors=True)  # a build that failed
                build(shared)
                shared.with_suffix(".done").touch()
        return shared

    return folder


@pytest.fixture(scope="session")
def checkpoint_series(built_once) -> Path:
    """A folder with ten checkpoints of one training; copy it to change it."""
    return built_once("checkpoint-series", train_series)


@pytest.fixture(scope="session")
def other_series(built_once) -> Path:
    """The same with another seed."""
    return built_once("other-checkpoint-series", lambda folder: train_series(folder, seed=1))


@pytest.fixture
def no_drawing() -> Iterator[None]:
    """Studies and analyses end with an empty report."""
    with undrawn():
        yield


WORDS = {
    "the": "le", "a": "un", "cat": "chat", "dog": "chien", "house": "maison", "sees": "voit", "likes": "aime",
    "old": "vieux", "red": "rouge", "big": "grand", "runs": "court", "sleeps": "dort",
}  # fmt: skip


@pytest.fixture(scope="session")
def parallel_corpus(tmp_path_factory):
    """Forty short sentence pairs of uneven length."""
    from infoflow.corpus import Corpus
    from infoflow.foundation import stream

    rng = stream("test-corpus")
    lines = []
    for _ in range(40):
        words = rng.choice(list(WORDS), size=rng.integers(1, 12))
        lines.append(f"{' '.join(words)}\t{' '.join(WORDS[word] for word in words)}\n")
    path = tmp_path_factory.mktemp("corpus") / "pairs.tsv"
    path.write_text("".join(lines))
    return Corpus.from_parallel(path)


@pytest.fixture(scope="session")
def matched_models(parallel_corpus):
    """Tiny matched models with random weights, by objective: two layers, four heads, width 32."""
    from dataclasses import replace

    from infoflow.corpus import train_tokenizer
    from infoflow.models import load_model
    from infoflow.objectives import Vocabulary, make_objective
    from infoflow.training import ModelConfig, build_models

    source = train_tokenizer((sentence.text for sentence in parallel_corpus), vocab_size=60)
    target = train_tokenizer((sentence.translation for sentence in parallel_corpus), vocab_size=60)
    objectives = [make_objective(name) for name in ("causal-lm", "masked-lm", "translation")]
    config = ModelConfig(width=32, layers=2, heads=4, feedforward=64, initializer_range=0.1, positions=64)
    modules = build_models(
        objectives, config, Vocabulary.from_tokenizer(source), Vocabulary.from_tokenizer(target), seed=0
    )
    models = {name: load_model(module, tokenizer=source) for name, module in modules.items()}
    return models | {"translation": replace(models["translation"], target_tokenizer=target)}
