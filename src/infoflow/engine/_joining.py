"""How other machines join a study that has left an invitation: `infoflow worker`."""

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from infoflow.foundation import Threads, UserError, available_cores, current_display, read_setting

from ._child import engine_folder
from ._invitation import Invitation, Versions, read_invitation, require_own

_LOOK = 1.0
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 30.0
"""First and last pause in seconds between attempts to reach a study; each doubles the preceding one."""
_LATE = 60.0  # seconds that a shared file system may take to show a new folder


def seconds_of(patience: str) -> float:
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)(s|m|h)?", patience.strip())
    if not found:
        raise UserError(f"--patience must be a time such as 90s, 10m or 2h. Got {patience}.")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2] or "s"]


def worker(
    run_folder: Path | str,
    jobs: int | None = None,
    threads: int = 1,
    gpus: Sequence[str] | None = None,
    patience: str = "10m",
) -> int:
    """Work for the study in `run_folder` until it ends; returns the exit code, 0.

    It waits for a study that listens there (`--cluster listen`), runs its stages, and waits again when it ends. If the
    connection is lost, it joins again. SIGTERM and Ctrl-C make it leave gracefully: running stages are saved and
    continue elsewhere. It runs whatever the folder defines, so work only in your own folders.

    Args:
        run_folder: The study's folder, which this machine must see under the same path.
        jobs: Concurrent stages; default: one for each GPU, else cores / threads.
        threads: Threads of each stage, as in the study's plan, which determine how many fit.
        gpus: Numbers or UUIDs of GPUs to use; default: those of `CUDA_VISIBLE_DEVICES`.
        patience: How long to wait for a study: `90s`, `10m`, `2h`.

    Raises:
        UserError: The study uses other versions or cannot be reached, its folder is not visible here or is writable by
            others, or `engine.json` is damaged or not private.
    """
    from ._worker import visible_devices

    limit = seconds_of(patience)
    folder = Path(run_folder).absolute()
    if gpus is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    threads = read_setting(Threads, threads, "--threads")
    devices = visible_devices()
    jobs = read_setting(Threads, jobs, "--processes") if jobs else len(devices) or max(1, available_cores() // threads)
    ended: set[str] = set()
    joined, why = False, ""
    while (invitation := _awaited(folder, limit, ended)) is not None:
        _check(invitation, folder)
        ending = _work_until_it_ends(invitation, folder, jobs, devices, limit)
        if ending.left:
            current_display().note("Left the study: stages that ran here are saved and resume elsewhere.")
            return 0
        joined, why = joined or ending.joined, ending.why
        ended.add(invitation.nonce)
        current_display().note(f"The study has ended. Waiting up to {patience} for another.")
    if not joined:
        raise UserError(f"The study in {folder} ended before this worker could reach it: {why}.")
    return 0


class _Ending(NamedTuple):
    """How the work for one study ended, and the last reason why this worker could not join."""

    left: bool
    joined: bool
    why: str


def _work_until_it_ends(
    invitation: Invitation, folder: Path, jobs: int, devices: Sequence[str], limit: float
) -> _Ending:
    """Work for a study until it withdraws its invitation, joining it again whenever the connection is lost."""
    from ._invitation import Unreachable
    from ._worker import serve

    joined, last_reason = False, ""
    pause, deadline = _FIRST_PAUSE, time.monotonic() + limit
    while True:
        try:
            if serve(invitation, jobs, devices) == "left":
                return _Ending(left=True, joined=True, why="")
            joined, why = True, "the connection was lost"
            pause, deadline = _FIRST_PAUSE, time.monotonic() + limit
        except Unreachable as error:
            why = str(error)
        if not _stands(invitation, folder):
            return _Ending(left=False, joined=joined, why=why)
        if time.monotonic() >= deadline:
            raise UserError(
                f"The study in {folder} could not be reached: {why}. Its invitation still exists. Make the study's "
                "port reachable from this machine; if the study was killed, start it again. --patience sets how long "
                "to try."
            )
        if why != last_reason:
            current_display().warn(f"The study cannot be reached: {why}. Retrying for {limit:.0f} s.")
            last_reason = why
        time.sleep(max(min(pause, deadline - time.monotonic()), 0))
        pause = min(2 * pause, _LAST_PAUSE)
        if not _stands(invitation, folder):
            return _Ending(left=False, joined=joined, why=why)


def _stands(invitation: Invitation, folder: Path) -> bool:
    """Whether the study still invites workers; it removes its invitation when it ends."""
    found = read_invitation(folder)
    return found is not None and found.nonce == invitation.nonce


def _awaited(folder: Path, seconds: float, ended: set[str]) -> Invitation | None:
    """The invitation of a study that is not in `ended`, once there is one; None after `seconds` without one."""
    deadline = time.monotonic() + seconds
    noted = False
    while True:
        invitation = read_invitation(folder)
        if invitation is not None and invitation.nonce not in ended:
            return invitation
        if time.monotonic() >= deadline:
            if not ended:
                raise UserError(
                    f"No study accepts workers in {folder}. Start one with --cluster listen on a machine that shares "
                    "this folder, or wait longer for it with --patience."
                )
            return None
        if not noted and not ended:
            current_display().note(f"Waiting for a study in {folder} (infoflow study ... --cluster listen).")
            noted = True
        time.sleep(min(_LOOK, max(deadline - time.monotonic(), 0.01)))


def _check(invitation: Invitation, folder: Path) -> None:
    """Refuse a machine with other versions or without access to the folder, and a folder that others may change."""
    require_own(folder)
    here = Versions.here()
    if refusal := invitation.versions.refusal(here):
        raise UserError(refusal)
    if here.processor != invitation.versions.processor:
        current_display().note(
            f"This machine's processor is {here.processor}, the study's {invitation.versions.processor}: results may "
            "differ in their last digits."
        )
    deadline = time.monotonic() + _LATE
    while not (engine_folder(invitation.folder) / invitation.nonce).is_dir():
        if time.monotonic() > deadline or not _is_same(invitation.folder, folder):
            raise UserError(
                f"This machine does not see the study's folder {invitation.folder}: all machines must see it under "
                "the same path."
            )
        if not _stands(invitation, folder):
            return
        time.sleep(_LOOK)


def _is_same(study: str, folder: Path) -> bool:
    try:
        return Path(study).samefile(folder)
    except OSError:
        return False
