"""Checks whether files and hashes can represent a text."""


def is_unicode(text: str) -> bool:
    """Whether it lacks unpaired surrogates, which JSON's escapes and undecodable file names can introduce."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
