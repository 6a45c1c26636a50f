"""The most that is held at once: what is taken and given back, in the order in which it happens."""

import torch

from attnbook.experiments._allocated import peak_bytes

MIB = 1 << 20


def numbers(mib):
    return torch.zeros(mib * MIB // 4)


def test_what_is_held_at_once_counts():
    """Two MiB after four that were given back: four. Two beside four: six. What was there before: nothing."""
    before = numbers(8)

    def one_after_another():
        numbers(4)
        return numbers(2)

    def side_by_side():
        first = numbers(4)
        return first, numbers(2)

    for call, expected in ((one_after_another, 4), (side_by_side, 6), (lambda: before[1:], 0)):
        assert abs(peak_bytes(call) - expected * MIB) < MIB / 100


def test_inside_one_operation_too():
    """A softmax in float64 of float32 numbers holds the converted copy as well."""
    x = numbers(1)
    assert peak_bytes(lambda: torch.softmax(x, 0, dtype=torch.float64)) >= 2 * MIB
