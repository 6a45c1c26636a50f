"""Peak memory: counted from allocations that really happen, whatever is released in between."""

import torch

from attnbook.experiments._peak import peak_and_kept, peak_bytes

KIB = 1 << 10


def test_what_is_released_before_more_is_taken_counts_once():
    """Three tables of 4 KiB one after another are 4 KiB at a time, three side by side are 12."""

    def one_after_another():
        for _ in range(3):
            torch.ones(KIB)

    assert peak_bytes(one_after_another) == 4 * KIB
    assert peak_bytes(lambda: [torch.ones(KIB) for _ in range(3)]) == 12 * KIB


def test_inputs_are_not_counted_and_what_is_returned_is():
    """A result of the size of its input: that size is held at the end; a working copy is in the peak alone."""
    x = torch.ones(KIB)
    assert peak_and_kept(lambda: x + x) == (4 * KIB, 4 * KIB)
    assert peak_and_kept(lambda: (x + x) * x) == (8 * KIB, 4 * KIB)


def test_nothing_is_printed(capfd):
    """The profiler's own lines stay out of a page."""
    peak_bytes(lambda: torch.ones(1))
    assert capfd.readouterr().err == ""
