"""How other machines join a study that has left an invitation: `infoflow worker`."""

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from infoflow.foundation import Threads, UserError, available_cores, current_display, read_setting

from ._child import engine_folder
from ._invitation import Invitation, Versions, read_invitation

_LOOK = 1.0
_LATE = 60.0
"""Seconds that a shared file system may take to show a new folder."""


def seconds_of(patience: str) -> float:
    """`90s`, `10m`, `2h` in seconds.

    Raises:
        UserError: It is nothing of that kind.
    """
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

    Waits for a study that listens there (`--cluster listen`), does its stages, and waits again when it ends. SIGTERM
    and Ctrl-C make it leave politely: what runs here is saved, and goes on elsewhere.

    Args:
        run_folder: The study's folder, which this machine must see under the same path.
        jobs: Stages at a time; default: one for each GPU, else cores / threads.
        threads: Threads of each stage, as the study's plan says, to count how many fit.
        gpus: Numbers or UUIDs of GPUs to use; default: those of `CUDA_VISIBLE_DEVICES`.
        patience: How long to wait for a study: `90s`, `10m`, `2h`.

    Raises:
        UserError: The study runs another version, its folder is not seen here, or `engine.json` is not private.
    """
    from ._worker import serve, visible_devices

    limit = seconds_of(patience)
    folder = Path(run_folder).absolute()
    if gpus is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    threads = read_setting(Threads, threads, "--threads")
    devices = visible_devices()
    jobs = read_setting(Threads, jobs, "--jobs") if jobs else len(devices) or max(1, available_cores() // threads)
    seen: set[str] = set()
    while (invitation := _awaited(folder, limit, seen)) is not None:
        seen.add(invitation.nonce)
        _check(invitation)
        if serve(invitation, jobs, devices) == "left":
            current_display().note("Left the study: what ran here is saved, and goes on elsewhere.")
            return 0
        current_display().note(f"The study has ended. Waiting for another, {patience} at most.")
    return 0


def _awaited(folder: Path, seconds: float, seen: set[str]) -> Invitation | None:
    """The invitation that is not in `seen`, once it is there; None: nothing came."""
    deadline = time.monotonic() + seconds
    told = False
    while True:
        invitation = read_invitation(folder)
        if invitation is not None and invitation.nonce not in seen:
            return invitation
        if time.monotonic() >= deadline:
            if not seen:
                raise UserError(
                    f"No study listens in {folder}. Start one with --cluster listen, on a machine that shares this "
                    "folder, or wait longer for it with --patience."
                )
            return None
        if not told and not seen:
            current_display().note(f"Waiting for a study in {folder} (infoflow study ... --cluster listen).")
            told = True
        time.sleep(min(_LOOK, max(deadline - time.monotonic(), 0.01)))


def _check(invitation: Invitation) -> None:
    here = Versions.here()
    if refusal := invitation.versions.refusal(here):
        raise UserError(refusal)
    if here.processor != invitation.versions.processor:
        current_display().note(
            f"This machine's processor is {here.processor}, the study's {invitation.versions.processor}: numbers may "
            "differ in their last digits."
        )
    deadline = time.monotonic() + _LATE
    while not (engine_folder(invitation.folder) / invitation.nonce).is_dir():
        if time.monotonic() > deadline:
            raise UserError(
                f"This machine does not see the study's folder {invitation.folder}: all machines must see it under "
                "the same path."
            )
        time.sleep(_LOOK)
