"""Suites on a model hub, told by a small one on this machine."""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.checkpoint_series import STEPS
from support.small_hub import Hub, small_hub

from infoflow.foundation import UserError
from infoflow.over_training import CheckpointSeries, WeighedCheckpoint, check_series, read_series, weigh

pytestmark = pytest.mark.slow

SUITE = "someone/suite"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def hub(checkpoint_series: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with small_hub(cache, monkeypatch) as found:
        for update in STEPS:
            found.add(SUITE, f"step{update}", checkpoint_series / f"checkpoint-{update}")
        found.add(SUITE, "main", checkpoint_series / "checkpoint-50")
        yield found


def _updates(series: CheckpointSeries) -> list[int]:
    return [one.update for one in series.checkpoints]


def _kept(cache: Path) -> list[str]:
    """Without the client's own locks and listings."""
    held = [path for kind in ("blobs", "snapshots") for path in cache.glob(f"*/{kind}/**/*")]
    return sorted(str(path.relative_to(cache)) for path in held if path.is_symlink() or path.is_file())


def test_all_revisions_are_listed_without_their_weights(hub: Hub) -> None:
    (series,) = read_series([f"{SUITE}@all"])
    assert _updates(series) == list(STEPS)
    assert series.name == SUITE
    assert not series.notes
    assert hub.downloads() == []
    first = series.checkpoints[0].place
    assert first.commit == hub.branches[SUITE]["step0"]
    assert first.revision == f"{SUITE}@step0"
    folder = hub.commits[SUITE, first.commit]
    assert first.weight_files()[0].sha256 == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def test_some_revisions_are_asked_for_alone(hub: Hub) -> None:
    (series,) = read_series([f"{SUITE}@log:3"])
    assert _updates(series) == [0, 2, 9, 50]
    assert sum("/revision/" in path for path in hub.asked) <= len(STEPS) / 2
    (series,) = read_series([f"{SUITE}@step4,step50"])
    assert _updates(series) == [4, 50]
    (series,) = read_series([f"{SUITE}@5..20"])
    assert _updates(series) == [6, 9, 13, 19]


def test_what_is_not_there(hub: Hub) -> None:
    (series,) = read_series([f"{SUITE}@step4,step5,step6"])
    assert [(one.update, one.why) for one in series.missing] == [(5, "there is no such revision")]
    with pytest.raises(UserError, match="has no repository nobody/nothing"):
        read_series(["nobody/nothing@all"])
    with pytest.raises(UserError, match="No step can be read"):
        read_series([f"{SUITE}@step4,best"])
    hub.add("someone/one", "main", hub.commits[SUITE, hub.branches[SUITE]["step0"]])
    with pytest.raises(UserError, match="no revisions besides main"):
        read_series(["someone/one@all"])


def test_a_branch_that_tells_no_step_is_told_of(hub: Hub, checkpoint_series: Path) -> None:
    hub.add(SUITE, "float16", checkpoint_series / "checkpoint-50")
    (series,) = read_series([f"{SUITE}@all"])
    assert _updates(series) == list(STEPS)
    assert "float16" in series.notes[0]


def test_a_main_of_its_own_is_not_on_the_axis(hub: Hub, other_series: Path, tmp_path: Path) -> None:
    tuned = Path(shutil.copytree(other_series / "checkpoint-50", tmp_path / "tuned"))
    (tuned / "trainer_state.json").unlink()
    hub.add(SUITE, "main", tuned)
    (series,) = read_series([f"{SUITE}@all"])
    assert _updates(series) == list(STEPS)
    assert "equals none of its checkpoints" in series.notes[0]
    (series,) = read_series([f"{SUITE}@all"], {"main": 60})
    assert _updates(series)[-1] == 60


def test_a_repository_for_each_checkpoint(hub: Hub, checkpoint_series: Path) -> None:
    for step in ("0k", "20k", "40k"):
        hub.add(f"google/multiberts-seed_0-step_{step}", "main", checkpoint_series / f"checkpoint-{len(step) * 2}")
    for step in ("0k", "20k", "40k"):
        folder = hub.commits[f"google/multiberts-seed_0-step_{step}", _main(hub, step)]
        hub.commits[f"google/multiberts-seed_0-step_{step}", _main(hub, step)] = _unnoted(folder)
    (series,) = read_series(["google/multiberts-seed_0-step_{0k,20k,40k,60k}"])
    assert series.name == "google/multiberts-seed_0"
    assert _updates(series) == [0, 20_000, 40_000]
    assert [one.name for one in series.missing] == ["google/multiberts-seed_0-step_60k"]
    assert series.updates == 2_000_000


def _main(hub: Hub, step: str) -> str:
    return hub.branches[f"google/multiberts-seed_0-step_{step}"]["main"]


@pytest.fixture(autouse=True)
def _notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}._UNNOTED", tmp_path / "unnoted")


_UNNOTED = Path()


def _unnoted(folder: Path) -> Path:
    """A copy without the note of its training."""
    copy = _UNNOTED / folder.name
    if not copy.exists():
        shutil.copytree(folder, copy)
        (copy / "trainer_state.json").unlink()
    return copy


def test_a_known_suite_tells_tokens_and_gaps(hub: Hub, checkpoint_series: Path) -> None:
    name = "EleutherAI/pythia-14m"
    for step in (0, 1, 1000):
        hub.add(name, f"step{step}", _unnoted(checkpoint_series / f"checkpoint-{[0, 2, 4][min(step, 2)]}"))
    hub.add(name, "main", hub.commits[name, hub.branches[name]["step1000"]])
    (series,) = read_series([f"{name}@0..1000"])
    assert [one.tokens for one in series.checkpoints] == [0, 2_097_152, 2_097_152_000]
    assert [one.update for one in series.missing] == [2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert series.missing[0].why == "Pythia should have it"
    assert series.notes == ()


def test_reported_revisions_are_told_of_and_kept(hub: Hub, checkpoint_series: Path) -> None:
    name = "EleutherAI/pythia-12b"
    for step in (49000, 50000):
        hub.add(name, f"step{step}", _unnoted(checkpoint_series / "checkpoint-4"))
    (series,) = read_series([f"{name}@step49000,step50000"])
    assert _updates(series) == [49_000, 50_000]
    assert series.notes[0].startswith("1 of these revisions of EleutherAI/pythia-12b are reported")


def test_a_revision_is_fetched_and_goes_again(hub: Hub, cache: Path) -> None:
    (series,) = read_series([f"{SUITE}@step4,step6"])
    before = _kept(cache)
    assert before == []
    for one in series.checkpoints:
        assert not one.place.is_here
        with one.place.opened() as folder:
            assert one.place.is_here
            assert (folder / "model.safetensors").exists()
            assert weigh(folder)[0].dtype == "float32"
        assert not one.place.is_here
    assert _kept(cache) == before
    assert len(hub.downloads()) == 2


def test_what_was_there_before_stays(hub: Hub, cache: Path) -> None:
    """The whole revision of another step, and the files that both share."""
    (series,) = read_series([f"{SUITE}@step4,step6"])
    mine, theirs = (one.place for one in series.checkpoints)
    with theirs.opened(keep=True):
        pass
    kept = _kept(cache)
    with mine.opened() as folder:
        assert weigh(folder)[0].tokenizer
    assert _kept(cache) == kept
    with theirs.opened() as folder:
        assert weigh(folder)[0].tokenizer
    assert theirs.is_here
    assert not mine.is_here


def test_a_failed_measurement_leaves_nothing(hub: Hub, cache: Path) -> None:
    (series,) = read_series([f"{SUITE}@step4,step6"])
    before = _kept(cache)
    with pytest.raises(ZeroDivisionError), series.checkpoints[0].place.opened():
        raise ZeroDivisionError
    assert _kept(cache) == before


def test_offline_only_what_is_cached(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    (series,) = read_series([f"{SUITE}@step4,step6,step9"])
    for one in series.checkpoints[:2]:
        with one.place.opened(keep=True):
            pass
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (cached,) = read_series([f"{SUITE}@step4,step6,step9"])
    assert _updates(cached) == [4, 6]
    assert [(one.name, one.why) for one in cached.missing] == [
        ("step9", "it is not in the cache, and the hub cannot be reached")
    ]
    assert [one.place.weight_files() for one in cached.checkpoints] == [
        one.place.weight_files() for one in series.checkpoints[:2]
    ]
    with cached.checkpoints[0].place.opened() as folder:
        assert (folder / "model.safetensors").exists()
    assert cached.checkpoints[0].place.is_here
    with pytest.raises(UserError, match="cannot be reached, and no revision"):
        read_series(["someone/other@all"])


def test_copies_are_found_without_a_download(hub: Hub, checkpoint_series: Path) -> None:
    """As of a published model most of whose early branches hold its last weights."""
    for update in STEPS:
        taken = 50 if update in (0, 4, 9) else update
        hub.add(SUITE, f"step{update}", _unnoted(checkpoint_series / f"checkpoint-{taken}"))
    (series,) = read_series([f"{SUITE}@all"])
    seen = [
        WeighedCheckpoint(name=one.name, update=one.update, files=one.place.weight_files())
        for one in series.checkpoints
    ]
    assert check_series(seen).same_as == {"step4": 0, "step9": 0, "step50": 0}
    assert len({one.place.identity() for one in series.checkpoints}) == len(STEPS) - 3
    assert hub.downloads() == []
