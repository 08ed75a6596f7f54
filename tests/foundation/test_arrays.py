import numpy as np
import pytest
import torch

from infoflow.foundation import as_tensor


def test_views_that_pytorch_refuses_or_warns_about_are_copied():
    x = np.arange(12.0).reshape(3, 4)
    fixed = x.copy()
    fixed.flags.writeable = False
    for view in (x[::-1], x[:, ::-2], x.T, fixed):
        np.testing.assert_array_equal(as_tensor(view), view)  # warnings are errors


def test_other_arrays_share_their_memory():
    x, y = np.zeros((2, 3)), torch.zeros(2, 3, requires_grad=True)
    assert as_tensor(x).data_ptr() == x.ctypes.data
    assert as_tensor(y).data_ptr() == y.data_ptr()
    assert not as_tensor(y).requires_grad


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_results_are_on_the_cpu():
    assert as_tensor(torch.ones(2, device="cuda")).device.type == "cpu"
