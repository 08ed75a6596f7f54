"""Messages hold what was given, and never as an order to the terminal or without end."""

import errno
import fcntl
import json
import pickle

import pytest

from infoflow.foundation import UserError, did_you_mean, json_fault, lock_file, locked


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a\x1b[31mb", "a [31mb"),
        ("a\0b\x7fc", "a b c"),
        ("a\u202eb\u2028c", "a b c"),
        ("half \udcff", "half  "),
        ("two\nlines", "two\nlines"),
        ("نمی\u200cخواهم é 猫", "نمی\u200cخواهم é 猫"),
        ("x" * 5000, f"{'x' * 100}…{'x' * 60} (5,000 characters)"),
        ("word " * 200, "word " * 200),
    ],
)
def test_a_message_is_showable(given: str, shown: str) -> None:
    assert str(UserError(given)) == shown
    assert str(pickle.loads(pickle.dumps(UserError(given)))) == shown


def test_the_nearest_known_name_is_asked_for() -> None:
    assert did_you_mean("quik", ["quick", "laptop"]) == " Did you mean quick?"
    assert did_you_mean("modle", ["model"], "plan.") == " Did you mean plan.model?"
    assert did_you_mean("nothing near", ["quick"]) == did_you_mean("", []) == did_you_mean("x" * 10**6, ["x"]) == ""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b"[" * 100_000, "too deep"),
        (b"9" * 5000, "more than 4,300 digits"),
        (b'"\xff"', "not UTF-8 text at byte 1"),
        (b'{"a"', "Expecting ':' delimiter"),
    ],
)
def test_faults_of_json_are_told_in_its_own_terms(text: bytes, fault: str) -> None:
    with pytest.raises((ValueError, RecursionError)) as caught:
        json.loads(text.decode())
    message = json_fault(caught.value)
    assert fault in message
    assert "codec" not in message
    assert "sys." not in message


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(tmp_path, monkeypatch, code: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (tmp_path / "file").open("w") as file:
        assert not lock_file(file.fileno())
        assert not lock_file(file.fileno(), wait=True)
    with locked(tmp_path / "folder") as alone:
        assert not alone
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_another_fault_of_a_lock_is_told(tmp_path, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with (tmp_path / "file").open("w") as file, pytest.raises(OSError, match="Input/output"):
        lock_file(file.fileno())
