"""Sizes of memory are read as they are written, and nothing is guessed."""

import pytest

from attnbook.costs.sizes import size_in_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [("80GiB", 85899345920), ("80GB", 80_000_000_000), ("1.5 TB", 1_500_000_000_000), (" 3 kib ", 3072), ("7B", 7)],
)
def test_a_size_is_read(text, expected):
    """GB and GiB apart, a fraction, spaces, letters of any size."""
    assert size_in_bytes(text) == expected


@pytest.mark.parametrize("text", ["80", "", "GiB", "80G", "-1GB", "1,5GB", "8 GiB of it"])
def test_what_is_no_size(text):
    """A number without its unit is refused, too."""
    with pytest.raises(ValueError, match=r"expected a size with its unit, as 80GiB or 80GB, got '"):
        size_in_bytes(text)
