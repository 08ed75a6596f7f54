"""Why a text is no JSON, in words of the text."""


def json_fault(error: ValueError | RecursionError) -> str:
    """What reading JSON found wrong: Python's own words would speak of codecs and of limits of its own."""
    if isinstance(error, RecursionError):
        return "lists or objects stand too deep in each other"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 text at byte {error.start:,}"
    return "a number has more than 4,300 digits" if "int_max_str_digits" in str(error) else str(error)
