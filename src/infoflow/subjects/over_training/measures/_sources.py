"""The checkpoints of repositories on the model hub, and the command line's sources of a series."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infoflow.foundation import UserError, patient_hub
from infoflow.models import at_revision

from ._checkpoint_names import (
    TRAINER_STATE,
    CheckpointName,
    PublicSuite,
    TrainerState,
    checkpoint_name,
    checkpoint_names,
    public_suite,
)
from ._places import BESIDE, HubPlace, StoredFile, snapshot_folder, weight_names, weight_paths
from ._series import (
    GRAMMAR,
    MAIN,
    CheckpointSeries,
    Missing,
    SuiteCheckpoint,
    branched,
    checkpoint_of,
    chosen,
    folder_series,
    is_choice,
    main_checkpoint,
)

_LISTED = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class _Revision:
    place: HubPlace | None = None
    state: TrainerState = TrainerState()  # noqa: RUF009 (frozen)
    why_missing: str = ""


def hub_series(repository: str, choice: str, steps: Mapping[str, int]) -> list[CheckpointSeries]:
    """The series of one repository; `choice` is the part after the @."""
    listed_by_name = [] if is_choice(choice) else choice.split(",")
    suite, source = public_suite(repository), f"{repository}@{choice}"
    with patient_hub():
        listed = _listing(repository)
        if is_choice(choice):
            names, notes = _readable([name for name in listed.commits if name != MAIN], steps, repository)
            names = _preselected(names, choice, source)
        else:
            names, notes = checkpoint_names([name for name in listed_by_name if name != MAIN], steps, repository), []
        revisions = {name.text: listed.revision(name.text) for name in names}
        more, main = _main(listed, revisions, steps) if is_choice(choice) or MAIN in listed_by_name else ([], [])
    found, missing = _found(names, revisions, suite, steps)
    missing += _gaps(suite, [*(name.step for name in names)], choice)
    notes += [*more, *_doubtful(suite, repository, revisions)]
    facts = {"missing": tuple(missing), "suite": suite, "notes": tuple(notes)}
    return branched(repository, found, main, choice if is_choice(choice) else "all", source, **facts)


def braced_series(source: str, repositories: Sequence[str], steps: Mapping[str, int]) -> list[CheckpointSeries]:
    """The series of repositories with one checkpoint each, such as `google/multiberts-seed_0-step_{20k,40k}`."""
    names = checkpoint_names(repositories, steps, source)
    suite = public_suite(repositories[0])
    with patient_hub():
        revisions = {name.text: _listing(name.text, required=False).revision(MAIN) for name in names}
    found, missing = _found(names, revisions, suite, steps)
    return [
        CheckpointSeries(
            name=re.sub(r"[-_](step|checkpoint)?[-_]?$", "", source.partition("{")[0]),
            checkpoints=tuple(chosen([one for _, one in found], "all", source)),
            missing=tuple(missing),
            suite=suite,
        )
    ]


def _readable(
    wanted: Sequence[str], steps: Mapping[str, int], repository: str
) -> tuple[list[CheckpointName], list[str]]:
    """The branches of a repository whose names have a step, and a note on the other branches."""
    odd = [name for name in wanted if name not in steps and checkpoint_name(name) is None]
    if len(odd) == len(wanted):
        checkpoint_names(wanted, steps, repository)  # reports them
        raise UserError(
            f"{repository} has no revisions besides {MAIN}. For one checkpoint: infoflow analyze {repository}"
        )
    names_listed = ", ".join(odd[:_LISTED]) + (f" and {len(odd) - _LISTED} more" if len(odd) > _LISTED else "")
    note = f"Revisions of {repository} without a step in their name (--steps NAME=STEP) are left out: {names_listed}."
    names = checkpoint_names([name for name in wanted if name not in odd], steps, repository)
    return names, [note] if odd else []


def _preselected(names: list[CheckpointName], choice: str, source: str) -> list[CheckpointName]:
    """Select names by their steps, before any revision's files are requested."""
    if len({name.stage for name in names}) > 1:
        return names
    nowhere = HubPlace(repository="", commit="", listed=())
    stand_ins = [SuiteCheckpoint(name=name.text, update=name.step, place=nowhere) for name in names]
    kept = {one.name for one in chosen(stand_ins, choice, source)}
    return [name for name in names if name.text in kept]


def _found(
    names: Iterable[CheckpointName],
    revisions: Mapping[str, _Revision],
    suite: PublicSuite | None,
    steps: Mapping[str, int],
) -> tuple[list[tuple[CheckpointName, SuiteCheckpoint]], list[Missing]]:
    """The checkpoints of the revisions by these names, and the missing ones."""
    found, missing = [], []
    for name in names:
        one = revisions[name.text]
        if one.place is None:
            missing.append(Missing(name=name.text, update=name.step, why=one.why_missing))
        elif (checkpoint := checkpoint_of(name, name.text, one.place, one.state, suite, steps)) is not None:
            found.append((name, checkpoint))
    return found, missing


def _main(
    listed: "_Listing", revisions: Mapping[str, _Revision], steps: Mapping[str, int]
) -> tuple[list[str], list[SuiteCheckpoint]]:
    """The checkpoint `main` unless it is missing or one of the revisions, or a note if its step is unknown."""
    main = listed.revision(MAIN)
    if main.place is None or any(
        each.place is not None and (each.place.commit == main.place.commit or each.place.listed == main.place.listed)
        for each in revisions.values()
    ):
        return [], []
    return main_checkpoint(main.place, main.state, steps, listed.repository)


def _doubtful(suite: PublicSuite | None, repository: str, names: Iterable[str]) -> list[str]:
    """A note on revisions that other people have found faulty; infoflow checks them like all others."""
    affected = [name for name in names if suite is not None and name in suite.doubtful.get(repository, ())]
    if suite is None or not affected:
        return []
    return [
        f"{len(affected)} of these revisions of {repository} are reported to hold other weights than their names say "
        f"({suite.source}). They are checked like all others."
    ]


def _gaps(suite: PublicSuite | None, steps: Sequence[int], choice: str) -> list[Missing]:
    """Expected steps of the suite that are missing, if all of them or a range were requested."""
    if suite is None or not suite.steps or not (choice == "all" or ".." in choice):
        return []
    first, last = (int(end) for end in choice.split("..")) if ".." in choice else (0, suite.steps[-1])
    absent = [step for step in suite.steps if first <= step <= last and step not in steps]
    return [Missing(name=f"step{step}", update=step, why=f"{suite.name} should have it") for step in absent]


# -- what there is ----------------------------------------------------------------------------------------------------


class _Listing:
    """The revisions of a repository by name, from the hub, or from the cache without a network."""

    def __init__(self, repository: str, commits: Mapping[str, str], offline: bool) -> None:
        self.repository, self.commits, self.offline = repository, commits, offline

    def revision(self, name: str) -> _Revision:
        commit = self.commits.get(name) or (name if re.fullmatch(r"[0-9a-f]{40}", name) else None)
        look = _cached_files if self.offline else _hub_files
        files, beside, noted = ((), (), False) if commit is None else look(self.repository, commit)
        if commit is None or not files:
            why = "it holds no weights" if name in self.commits else "there is no such revision"
            return _Revision(
                why_missing="it is not in the cache, and the hub cannot be reached" if self.offline else why
            )
        branch = "" if name == commit else name
        place = HubPlace(repository=self.repository, commit=commit, listed=files, beside=beside, branch=branch)
        return _Revision(place=place, state=place.state() if noted else TrainerState())


def _listing(repository: str, required: bool = True) -> _Listing:
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    if not constants.HF_HUB_OFFLINE:
        try:
            refs = HfApi().list_repo_refs(repository)
            return _Listing(repository, {ref.name: ref.target_commit for ref in [*refs.tags, *refs.branches]}, False)
        except (RepositoryNotFoundError, HFValidationError) as error:
            if required:
                raise UserError(
                    f"The model hub has no repository {repository[:120]}, and there is no folder of that name. Check "
                    f"it, or write {GRAMMAR}."
                ) from error
            return _Listing(repository, {}, False)
        except Exception:
            pass
    commits = _cached_commits(repository)
    if required and not commits:
        raise UserError(
            f"The hub cannot be reached, and no revision of {repository} is in the cache. Check the name and the "
            "network, or give a folder that holds checkpoints."
        )
    return _Listing(repository, commits, True)


def _cached_commits(repository: str) -> dict[str, str]:
    """The cached commits by revision: the names known for commits, and the commits themselves."""
    from huggingface_hub import constants, scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repos = scan_cache_dir(constants.HF_HUB_CACHE).repos  # its own default is read once, at import
    except CacheNotFound:
        return {}
    found: dict[str, str] = {}
    for repo in repos:
        if repo.repo_id == repository and repo.repo_type == "model":
            found |= {ref: one.commit_hash for one in repo.revisions for ref in one.refs}
    return found


_Files = tuple[StoredFile, ...]


def _cached_files(repository: str, commit: str) -> tuple[_Files, _Files, bool]:
    """As `_hub_files`, for a cached commit. The cache names large files by their SHA-256."""
    folder = snapshot_folder(repository, commit)
    if not folder.is_dir():
        return (), (), False

    def stored(paths: Iterable[Path]) -> _Files:
        return tuple(
            StoredFile(name=path.name, sha256=path.resolve().name, bytes=path.stat().st_size)
            for path in paths
            if path.exists()
        )

    return stored(weight_paths(folder)), stored(folder / name for name in BESIDE), (folder / TRAINER_STATE).exists()


def _hub_files(repository: str, commit: str) -> tuple[_Files, _Files, bool]:
    """Weights and other relevant files of a commit, as listed by the hub, and whether its training left a record."""
    from huggingface_hub import HfApi

    siblings: Any = HfApi().model_info(repository, revision=commit, files_metadata=True).siblings or []
    by_name = {each.rfilename: each for each in siblings}

    def stored(names: Iterable[str]) -> _Files:
        found = [by_name[name] for name in names if name in by_name]
        return tuple(
            StoredFile(
                name=each.rfilename,
                sha256=each.lfs.sha256 if each.lfs else str(each.blob_id),
                bytes=int(each.size or 0),
            )
            for each in found
        )

    return stored(weight_names(sorted(by_name))), stored(BESIDE), TRAINER_STATE in by_name


# Command-line sources of a series of checkpoints.

_MOST = 1000  # maximum number of repositories from braces


def read_series(sources: Sequence[str], steps: Mapping[str, int] | None = None) -> list[CheckpointSeries]:
    """The series of checkpoints from these sources; hub weights are not fetched yet.

    | source | its checkpoints |
    |---|---|
    | `NAME@step1000,step2000` | these revisions of a repository |
    | `NAME@all`, `NAME@log:12`, `NAME@1000..20000` | all, 12 evenly in log time, or those of a range of steps |
    | `google/multiberts-seed_0-step_{20k,40k}` | one in each of these repositories |
    | a folder | its `checkpoint-*`, `step-*` or the like; with `@log:12` or a range some of them |
    | a run folder | the checkpoints of its models, one series for each model |

    `steps` are the updates of checkpoints whose names do not contain them.
    """
    found = [series for source in sources for series in _read(source, steps or {})]
    names = [series.name for series in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"Each series of checkpoints must be given once. Got {twice[0]} twice.")
    return found


def _read(source: str, steps: Mapping[str, int]) -> list[CheckpointSeries]:
    if not source.strip():
        raise UserError(f"A series of checkpoints is a folder, or {GRAMMAR}. Got an empty name.")
    if os.path.exists(source):  # noqa: PTH110 (pathlib's method raises for names that are too long)
        return folder_series(Path(source), "all", steps)
    name, behind = at_revision(source)
    at, choice = behind is not None, behind or ""
    if at and not choice:
        raise UserError(f"{source[:120]} names no revision after its @. Write {GRAMMAR}.")
    if at and os.path.isdir(name):  # noqa: PTH112 (as above)
        return folder_series(Path(name), choice, steps)
    if "{" in source:
        return braced_series(source, _braces(source), steps)
    if not at and (source.startswith((".", "/", "~")) or source.count("/") > 1):
        raise UserError(f"No folder at {source[:200]}. Check the path, or write {GRAMMAR}.")
    if not at:
        raise UserError(
            f"{source[:120]} names one model. Say which of its revisions: {source[:120]}@all, {source[:120]}@log:12 or "
            f"@1000..20000; to measure it as it is: infoflow analyze {source[:120]}"
        )
    return hub_series(name, choice, steps)


def _braces(source: str) -> list[str]:
    """`a{b,c}` as `ab` and `ac`."""
    found = re.fullmatch(r"([^{}]*)\{([^{}]*)\}([^{}]*)", source)
    parts = [part.strip() for part in found[2].split(",")] if found else []
    if found is None or not all(parts) or len(set(parts)) < len(parts) or len(parts) > _MOST:
        raise UserError(
            f"Braces hold parts of names, such as google/multiberts-seed_0-step_{{20k,40k}}. Got {source[:120]}."
        )
    return [f"{found[1]}{part}{found[3]}" for part in parts]
