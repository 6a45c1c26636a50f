"""Decoding touches nothing outside of what it is given and what it makes; a table that is wrong starts no kernel."""

import pytest
import torch

from attnbook.errors import ShapeError
from attnbook.kernels import outputs
from attnbook.kernels.decode import decode_forward, merge_parts, paged_forward
from tests.kernels.decode_product import inputs, pages, small_splits
from tests.kernels.device import DEVICE
from tests.kernels.poison import guarded, guarded_output, untouched_around

LENGTHS = [71, 0, 33]
SHAPE = (3, 4, 2, 3, 71, 11, 7)  # b, n_heads, n_kv_heads, t_q, t_kv, d, d_v
OPTIONS = {
    "is_causal": True, "window": 40, "softcap": 2.0,
    "alibi_slopes": torch.tensor([0.1, 0.2, 0.3, 0.4], device=DEVICE), "sinks": torch.arange(4.0, device=DEVICE),
}  # fmt: skip


def one_after_another(q, k, v):
    with small_splits():
        return decode_forward(q, k, v, **OPTIONS)


def in_pages(q, k, v):
    """Pages of 5 in an order of their own; every free place is NaN, and every unused entry of the table far outside."""
    paged = pages(5, k, v, LENGTHS)
    with small_splits():
        return paged_forward(q, *paged, torch.tensor(LENGTHS, device=DEVICE), **OPTIONS)


def merged(q, k, v):
    """Three parts: their averages are values, their lses are components of queries."""
    return merge_parts(v[:, None, :, : q.shape[2]], q[:, None, : v.shape[1], :, 0])


@pytest.mark.parametrize("call", [one_after_another, in_pages, merged], ids=lambda f: f.__name__)
def test_nothing_outside_is_read_or_written(monkeypatch, call):
    """Guard rows of NaN around inputs, parts and results: none comes in, and all are still there."""
    given = [x.to(DEVICE) for x in inputs(SHAPE, torch.float32)]
    expected = call(*given)
    made = []

    def empty(*arguments):
        made.append(guarded_output(*arguments))
        return made[-1]

    monkeypatch.setattr(outputs, "empty", empty)
    inside = [guarded(x.shape, x).copy_(x) for x in given]
    for x, y in zip(call(*inside), expected, strict=True):
        assert y.isfinite().any()
        assert torch.equal(x, y)
    assert len(made) == (2 if call is merged else 4)  # out and lse, and those of the parts
    assert all(untouched_around(x) for x in (*inside, *made))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"page": 99}, "page_table[0, 1] is 99: expected 0 to"),  # a page that is not there
        ({"page": None}, "a page has one owner"),  # another sequence's
        ({"length": 81}, "lengths[0] is 81: expected 0 to 80"),  # a cache longer than its pages
    ],
    ids=["no page", "a foreign page", "longer than its pages"],
)
def test_a_wrong_table_starts_nothing(monkeypatch, wrong, says):
    """It is refused before memory is made or a kernel launched."""
    q, k, v = (x.to(DEVICE) for x in inputs(SHAPE, torch.float32))
    k_pages, v_pages, table = pages(5, k, v, LENGTHS)
    lengths = torch.tensor(LENGTHS, device=DEVICE)
    if "page" in wrong:
        table[0, 1] = table[2, 0] if wrong["page"] is None else wrong["page"]
    lengths[0] = wrong.get("length", lengths[0])

    def refuse(*arguments):
        raise AssertionError("memory is made for a call that is wrong")

    monkeypatch.setattr(outputs, "empty", refuse)
    with pytest.raises(ShapeError) as caught:
        paged_forward(q, k_pages, v_pages, table, lengths)
    assert says in str(caught.value)
