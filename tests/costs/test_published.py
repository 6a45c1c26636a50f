"""What others state of the models in the table: weights counted from shapes agree with it, to two digits."""

import pytest

from attnbook.costs import count_parameters, names
from attnbook.costs.published import agrees, in_name, published
from tests.costs.test_models import EXACT


@pytest.mark.parametrize("name", published())
def test_all_and_active_weights_agree_to_two_digits(name):
    """With the input's embedding left out of the active ones where the maker does so."""
    entry, found = published()[name], count_parameters(name)
    assert agrees(found.total, entry.total)
    if entry.active:
        assert agrees(found.active - (found.embedding if entry.without_input_embedding else 0), entry.active)


def test_every_statement_has_a_model_a_source_and_two_digits():
    """In the order of the table; most models are in it."""
    stated = published()
    assert [name for name in names() if name in stated] == list(stated)
    assert len(stated) > 0.8 * len(names())
    for entry in stated.values():
        assert entry.source
        for text in filter(None, (entry.total, entry.active)):
            assert len(text.replace(".", "").lstrip("0")) >= 2
        assert entry.active or not entry.without_input_embedding


def test_whole_counts_are_those_of_the_other_tests():
    """Where both hold a count to the last weight, it is one count."""
    for name, entry in published().items():
        if name in EXACT and len(entry.total) > 6:
            assert round(float(entry.total) * 1e9) == EXACT[name]


def test_sizes_are_read_from_names():
    """All weights, and the active ones where a name has them; versions and other numbers are no sizes."""
    assert in_name("Llama-3.1-70B") == ("70", "")
    assert in_name("Qwen2.5-0.5B") == ("0.5", "")
    assert in_name("Mixtral-8x7B") == ("56", "")
    assert in_name("Qwen3-235B-A22B") == ("235", "22")
    assert in_name("gpt-oss-120b") == ("120", "")
    assert in_name("Phi-4") == in_name("DeepSeek-V3") == ("", "")


def test_agreement_is_rounding_or_cutting():
    """32.76 is 32 or 33 and nothing else; 69 is not 70; one digit is as much as a name may have."""
    assert [agrees(32_762_123_264, text) for text in ("31", "32", "33", "34")] == [False, True, True, False]
    assert not agrees(68_976_653_312, "70")
    assert agrees(6_738_415_616, "7")
    assert not agrees(6_738_415_616, "8")
    assert agrees(405_853_388_800, "405")
    assert agrees(116_829_156_672, "120")
    assert not agrees(116_829_156_672, "130")
    with pytest.raises(ValueError, match="stated: expected a number above 0, got '0'"):
        agrees(1, "0")
