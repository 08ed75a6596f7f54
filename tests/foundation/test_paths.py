"""Texts that are passed on name files, and no folders."""

import pytest

from infoflow.foundation import command_without_folders, without_folders


@pytest.mark.parametrize(
    ("text", "named", "anonymous"),
    [
        ("/home/jane/secret project/a.en,/home/jane/a.fr", "a.en,a.fr", "…,…"),
        ("~/data/x.gz", "x.gz", "…"),
        ("../x/y.txt", "y.txt", "…"),
        ("C:\\Users\\jane\\x.txt", "x.txt", "…"),
        ("/home/jane/runs/seed-0", "runs/seed-0", "…"),
        ("/home/j/x.txt cannot be read: no. See /home/j/y", "x.txt cannot be read: no. See y", None),
        ("tatoeba-en-fr", "tatoeba-en-fr", "tatoeba-en-fr"),
        ("hf:user/name", "hf:user/name", "hf:user/name"),
        ("google/bert", "google/bert", "google/bert"),
        ("https://a.b/c/d", "https://a.b/c/d", "https://a.b/c/d"),
        ("and/or, 1/2, no / path", "and/or, 1/2, no / path", "and/or, 1/2, no / path"),
    ],
)
def test_a_path_becomes_its_name(text, named, anonymous):
    assert without_folders(text) == named
    assert without_folders({"key": [text, 3]}) == {"key": [named, 3]}
    if anonymous is not None:
        assert without_folders(text, anonymous=True) == anonymous


def test_folders_of_the_user_may_have_spaces(monkeypatch, tmp_path):
    from infoflow.foundation import without_folders

    home = tmp_path / "jane doe"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    assert "jane" not in without_folders(f"the file {home}/x.txt is empty")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            "infoflow analyze '/home/jane doe/m/bert' --corpus=/data/p/x.txt,/d/y.txt --out a/b/c google/bert",
            "infoflow analyze bert --corpus=x.txt,y.txt --out c google/bert",
        ),
        ("python /home/x/y.py 'not closed", "python y.py 'not closed"),
        ("", ""),
    ],
)
def test_a_command_names_files(command, expected):
    assert command_without_folders(command) == expected


def test_the_provenance_of_what_is_passed_on_has_no_folders(monkeypatch):
    import sys

    from infoflow.foundation import provenance, public_provenance

    monkeypatch.setattr(sys, "argv", ["/usr/bin/infoflow", "analyze", "/home/jane/m/bert"])
    assert "/home/jane" in provenance()["command"]
    assert "bert" not in str(public_provenance())
