"""Whether a text is one that files and hashes can hold."""


def is_unicode(text: str) -> bool:
    """Whether it has no half of a surrogate pair, which JSON's escapes and undecodable file names bring in."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
