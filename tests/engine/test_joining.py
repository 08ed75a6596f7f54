"""The invitation of a study, and what is asked of a worker."""

import asyncio
import multiprocessing.process
import os
import signal
from pathlib import Path

import pytest

from infoflow.engine._child import StageMessage
from infoflow.engine._invitation import Invitation, Versions, read_invitation
from infoflow.engine._joining import seconds_of
from infoflow.engine._starting import starter
from infoflow.engine._supervisor import Supervisor
from infoflow.engine._where import parse_listen, require_private
from infoflow.engine._worker import _signals, visible_devices


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("10m", 600), ("2h", 7200), ("1.5m", 90), ("0", 0)])
def test_patience_is_a_time(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-1s", "10 minutes", "1d", "inf", "9" * 99])
def test_what_is_no_time_is_refused(text):
    from infoflow.foundation import UserError

    with pytest.raises(UserError, match="--patience must be a time"):
        seconds_of(text)


@pytest.mark.parametrize(
    ("where", "expected"),
    [("listen:10.0.0.7", ("10.0.0.7", 0)), ("listen:node7:8786", ("node7", 8786)), ("listen:[::1]:1", ("::1", 1))],
)
def test_where_to_listen(where, expected):
    assert parse_listen(where) == expected


def test_by_default_the_machines_own_address_is_taken(monkeypatch):
    import socket

    monkeypatch.setattr(socket, "gethostname", lambda: "node7")
    monkeypatch.setattr(socket, "gethostbyname", {"node7": "192.0.2.7"}.get)
    assert parse_listen("listen") == ("192.0.2.7", 0)


@pytest.mark.parametrize(
    ("address", "private"),
    [
        ("tls://10.0.0.7:8786", True), ("tcp://127.0.0.1:8786", True), ("tcp://[::1]:8786", True),
        ("tcp://10.0.0.7:8786", False), ("ws://10.0.0.7:8786", False), ("ucx://127.0.0.1.evil.org:1", False),
    ],
)  # fmt: skip
def test_only_encrypted_or_local_addresses_are_reached(address, private):
    from infoflow.foundation import UserError

    require_private(address, insecure=True)
    if private:
        require_private(address, insecure=False)
    else:
        with pytest.raises(UserError, match="--insecure"):
            require_private(address, insecure=False)


@pytest.fixture
def invitation(folder):
    from infoflow.engine._invitation import self_signed

    certificate, key = self_signed()
    texts = {"address": "tls://127.0.0.1:1", "certificate": certificate, "key": key, "nonce": "n"}
    return Invitation(folder=folder, versions=Versions.here(), **texts)


def test_an_invitation_is_for_its_user_alone(folder, invitation):
    old = os.umask(0)
    try:
        invitation.write(folder)
    finally:
        os.umask(old)
    path = Path(folder) / "engine.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in Path(folder).iterdir()] == ["engine.json"]
    assert read_invitation(folder) == invitation
    invitation.remove(folder)
    assert read_invitation(folder) is None


def test_another_studys_invitation_stays(folder, invitation):
    from dataclasses import replace

    other = replace(invitation, nonce="later")
    other.write(folder)
    invitation.remove(folder)
    assert read_invitation(folder) == other


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"address": 1}', "\x00\xff"])
def test_a_damaged_invitation_is_told(folder, text):
    from infoflow.foundation import UserError

    path = Path(folder) / "engine.json"
    path.write_text(text, encoding="latin-1")
    path.chmod(0o600)
    with pytest.raises(UserError, match=r"engine\.json"):
        read_invitation(folder)


def test_versions_that_change_numbers_are_refused():
    from dataclasses import replace

    here = Versions.here()
    assert here.refusal(here) == ""
    assert here.refusal(replace(here, processor="another")) == ""
    for name in ("infoflow", "python", "torch"):
        assert f"a different version of {name}" in here.refusal(replace(here, **{name: "0.0"}))
    assert "a different infoflow code" in here.refusal(replace(here, code="0"))
    for name in ("numpy", "scipy", "scikit-learn", "transformers", "tokenizers"):
        other = replace(here, libraries={**here.libraries, name: "0.0"})
        assert f"a different version of {name} from the study: 0.0, not" in here.refusal(other)


def test_without_a_study_the_worker_says_how_to_start_one(folder):
    from infoflow.engine import worker
    from infoflow.foundation import UserError

    with pytest.raises(UserError, match="--cluster listen"):
        worker(folder, patience="0s")


def test_gpus_are_found_without_cuda(tmp_path, monkeypatch):
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_devices(tmp_path) == ("0", "1")
    for setting, expected in {"": (), "-1": (), "3": ("3",), "GPU-1, MIG-2": ("GPU-1", "MIG-2")}.items():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
        assert visible_devices(tmp_path) == expected


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_heard_though_the_loop_never_turns_again(number):
    """A worker that closes at the end of a study would wait for the next one, asked to leave or not."""

    async def last_turn() -> list[int]:
        with _signals(asyncio.Event()) as asked:
            os.kill(os.getpid(), number)
        return asked

    before = signal.getsignal(number)
    assert asyncio.run(last_turn()) == [number]
    assert signal.getsignal(number) == before


def test_a_signal_wakes_the_loop():
    async def waiting() -> list[int]:
        leaving = asyncio.Event()
        with _signals(leaving) as asked:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(leaving.wait(), 10)
        return asked

    assert asyncio.run(waiting()) == [signal.SIGTERM]


def test_a_worker_below_a_nanny_says_what_to_set(monkeypatch):
    monkeypatch.setitem(multiprocessing.process.current_process()._config, "daemon", True)
    here = starter()
    try:
        with pytest.raises(RuntimeError, match=r"distributed\.worker\.daemon: false"):
            Supervisor(here).supervise(StageMessage(folder="", key="a", notes="", entry=""), 0.0, lambda message: None)
    finally:
        here.close()


def test_two_files_import_dask():
    import infoflow.engine

    importing = {
        path.name
        for path in Path(infoflow.engine.__file__).parent.glob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.split()[:1] in (["import"], ["from"]) and line.split()[1].split(".")[0] in ("dask", "distributed")
    }
    assert importing == {"_dask.py", "_worker.py"}
