import pytest
import torch

from infoflow.foundation import UserError
from infoflow.representations._views import as_view


def test_finite_rows_whose_sum_overflows_are_finite():
    huge = torch.full((2, 2), 3e38)
    assert torch.equal(as_view(huge, "x", dtype=None), huge)


@pytest.mark.parametrize("bad", [[torch.inf, 1.0], [torch.inf, -torch.inf], [torch.nan, 1.0]])
def test_what_is_not_finite_is_refused(bad):
    with pytest.raises(UserError, match="NaN or infinity"):
        as_view(torch.tensor([bad]), "x")
