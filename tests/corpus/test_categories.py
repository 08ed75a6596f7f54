import pytest

from infoflow.corpus import split_category


@pytest.mark.parametrize(
    ("category", "left", "right"),
    [
        ("N", "", ""),
        ("NP/N", "", "N"),
        (r"S\NP", "NP", ""),
        (r"(S\NP)/NP", "NP", "NP"),
        (r"S\NP/NP", "NP", "NP"),  # slashes associate to the left
        (r"((S\NP)\(S\NP))/NP", r"S\NP NP", "NP"),
        (r"(NP\NP)/(S/NP)", "NP", "S/NP"),
        (r"((S[dcl]\NP)/PP)/NP", "NP", "NP PP"),
        ("(S/NP)", "", "NP"),
        (r"(N/N)\(N/N)", "N/N", "N"),
        ("", "", ""),
    ],
)
def test_outermost_arguments_are_peeled(category, left, right):
    assert split_category(category) == (left, right)
