"""What the bytes of exponents tell: nothing that is not finite is ever taken for finite."""

import pytest
import torch

from attnbook.api.exponents import MOST, ends_surely_finite, surely_finite


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_bytes_of_the_last_row_tell_what_may_not_be_finite(dtype):
    """Any sequence, head, component and layout; what is below 2¹²⁷ is sure, and no other row matters."""
    plain = torch.randn(2, 3, 5, 7, generator=torch.Generator().manual_seed(0)).to(dtype)
    for out in (plain, plain.transpose(1, 2).contiguous().transpose(1, 2), plain.repeat(1, 1, 2, 1)[:, :, ::2]):
        assert ends_surely_finite(out)
        for value in (torch.nan, torch.inf, -torch.inf, 2.0**127, -(2.0**127)):
            for place in ((0, 0, -1, 0), (1, 2, -1, 6), (0, 1, -1, 3)):
                spoilt = out.clone()
                spoilt[place] = value
                assert not ends_surely_finite(spoilt)
        above, largest = out.clone(), out.clone()
        above[:, :, :-1] = torch.nan
        largest[1, 2, -1, 6] = 2.0**126
        assert ends_surely_finite(above)
        assert ends_surely_finite(largest)


def test_a_row_that_bytes_cannot_tell_is_looked_at_by_torch():
    """float16 and components that lie apart; and a tensor without memory of its own is an error."""
    out = torch.zeros(1, 2, 3, 4)
    assert not ends_surely_finite(out.half())
    assert not ends_surely_finite(out.transpose(2, 3))
    with pytest.raises(RuntimeError):
        torch.func.grad(lambda x: x.sum() * ends_surely_finite(x))(out)


def test_a_few_numbers_side_by_side():
    """Each place is seen; more than a few, or spread, are left to torch."""
    x = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    assert surely_finite(x)
    for value in (torch.nan, torch.inf, -torch.inf):
        for place in ((0, 0, 0), (1, 2, 4)):
            spoilt = x.clone()
            spoilt[place] = value
            assert not surely_finite(spoilt)
            assert not surely_finite(spoilt.permute(2, 0, 1))
    assert surely_finite(x.permute(2, 0, 1))
    assert surely_finite(x[1:2].transpose(0, 1))
    assert not surely_finite(x[:, :2])
    assert not surely_finite(x[:, :, ::2])
    assert not surely_finite(x[0].expand(2, 3, 5))
    assert not surely_finite(x.double())
    assert surely_finite(torch.zeros(MOST // 4))
    assert not surely_finite(torch.zeros(MOST // 4 + 1))
