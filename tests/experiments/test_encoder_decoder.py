"""The same model with and without a causal mask: blanks, going on, and what going on costs."""

import pytest

from attnbook.experiments import encoder_decoder


@pytest.fixture(scope="module")
def found():
    return encoder_decoder.run(seed=3, models=3, steps=150)


def test_only_the_encoder_fills_a_blank_whose_clue_comes_later(found):
    """The decoder guesses among ten digits there, and knows the second half as well as the encoder."""
    assert found["mask.encoder_fill_first"] > 0.9
    assert found["mask.decoder_fill_first"] == pytest.approx(0.1, abs=0.02)
    assert found["mask.encoder_fill_second"] > 0.9
    assert found["mask.decoder_fill_second"] > 0.9


def test_both_write_the_second_half(found):
    """The encoder does it with a blank at the end."""
    assert found["mask.decoder_goes_on"] > 0.9
    assert found["mask.encoder_goes_on"] > 0.9


def test_only_the_decoders_past_stays_where_it_is(found):
    """Which is what lets it keep what it has computed."""
    assert found["mask.decoder_past_moves"] == 0
    assert found["mask.encoder_past_moves"] is True


def test_scores_by_hand(found):
    """Decoder 1 + 2 + … + 11; encoder 7² + 8² + … + 12²."""
    assert found["mask.decoder_scores"] == 66
    assert found["mask.encoder_scores"] == 559
    assert found["mask.scores_ratio_grows"] is True
