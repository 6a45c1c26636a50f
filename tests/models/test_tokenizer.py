"""Text to tokens as the tokenizers library does it with the same vocabulary, and back."""

import random
import unicodedata

import pytest
from tokenizers import Tokenizer as Theirs
from tokenizers import models, pre_tokenizers

from attnbook.models.gguf_file import GGUFFile
from attnbook.models.tokenizer import Tokenizer, byte_letters, cut_gpt2, cut_single_digits
from tests.models.small_gguf import MERGES, TOKENS, TYPES, real_path

SENTENCES = (
    "The quick brown fox jumps over the lazy dog.", "It's we've they'll I'm you're he'd DON'T don't 's", "",
    " ", "  ", "   leading", "trailing   ", "a  b   c", "tabs\tand\nlines\n\n\n  x\r\n", "3.14159, 2026-11-30, 1e-5",
    "in  5 days, in 5", "½ ² Ⅷ ① 𝟘 ٣", "def f(x):\n    return x ** 2\n", "吾輩は猫である。名前はまだ無い。",
    "注意機構は、重みつき平均です。 ２０２６年　全角", "어텐션은 가중 평균입니다.", "🙂👍🏽 👨‍👩‍👧 flags 🇯🇵",
    "naïve café é Ǆ ß", "_snake_case__ __init__",
    "\x1c\x1d a\x1fb\x85c\xa0d\u2028e\u3000f\u200bg",
    "«quotes» “x” – — …",
    "<|im_start|>user\nhi<|im_end|>", "<|im_start", "'" * 9,
)  # fmt: skip
POOL = "abXY   \t\n.,'\"_-01½Ⅷ²٣一二東京はノ한글🙂🏽é\u0301\u3000\xa0\u2028\x1c\x85'st'll«ßǅΩжЖ\u200d𝟘𝕏①"


@pytest.fixture(scope="module")
def pair():
    """Ours and theirs, from the same file; theirs cuts as SmolLM2's own tokenizer.json says.

    What transformers 5.24 makes of the GGUF file's tokenizer is no judge: it leaves out the cut at digits.
    """
    metadata = GGUFFile.open(real_path()).metadata
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    theirs = Theirs(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    theirs.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    control = [i for i, kind in enumerate(metadata["tokenizer.ggml.token_type"]) if kind == 3]
    theirs.add_special_tokens([tokens[i] for i in control])
    return Tokenizer.from_metadata(metadata), theirs


def texts(n=1_500):
    """Sentences, and random ones of letters that meet in no sentence."""
    choose = random.Random(0)
    return [*SENTENCES, *("".join(choose.choices(POOL, k=choose.randrange(1, 50))) for _ in range(n))]


def test_tokens_are_those_of_the_tokenizers_library(pair):
    """Every text, also what no sentence has."""
    ours, theirs = pair
    for text in texts():
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids, repr(text)


def test_decoding_undoes_encoding(pair):
    """For all text whose bytes the vocabulary has; it lacks 21 that are never or hardly ever in UTF-8."""
    ours, _ = pair
    lacking = {byte for byte, letter in byte_letters().items() if letter not in ours.tokens}
    assert len(lacking) == 21
    for text in texts(300):
        if lacking & set(text.encode()):
            continue
        assert ours.decode(ours.encode(text)) == text
        assert ours.decode(ours.encode(text, special=False)) == text
    assert ours.encode("a\x04b") == ours.encode("a") + ours.encode("b")


def test_known_tokens(pair):
    """A few by hand, so that both cannot be wrong in the same way."""
    ours, _ = pair
    assert ours.pieces(ours.encode("It's  42 cats")) == ["It", "'s", "  ", "4", "2", " cats"]
    assert ours.encode("<|im_start|>")[0] == 1
    assert len(ours.encode("<|im_start|>", special=False)) > 1
    assert ours.decode([1, *ours.encode("hi"), 2], special=False) == "hi"
    assert ours.decode(ours.encode("注")[:1]) == "�"
    assert len(ours) == 49_152


@pytest.mark.parametrize(("cut", "expected"), [(cut_gpt2, [" 42", "²"]), (cut_single_digits, [" ", "4", "2", "²"])])
def test_digits_stay_together_or_not(cut, expected):
    """GPT-2's number takes its space; a digit that stands alone takes none."""
    assert "".join(cut("in 42² days")) == "in 42² days"
    numbers = [piece for piece in cut("in 42² days") if piece not in ("in", " days")]
    assert numbers == ([" 42²"] if cut is cut_gpt2 else expected)


def test_gpt2_cuts_are_those_of_the_tokenizers_library():
    """The pattern that the library calls ByteLevel."""
    theirs = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for text in texts(500):
        expected = [text[a:b] for _, (a, b) in theirs.pre_tokenize_str(text)]
        assert cut_gpt2(text) == expected, repr(text)


def test_letters_of_re_are_those_of_unicode():
    r"""What the patterns lean on: `\w` without `_` is category L or N, for every character."""
    for x in range(0x110000):
        assert chr(x).isalnum() == (unicodedata.category(chr(x))[0] in "LN")


def test_pairs_are_merged_in_the_order_of_the_merges():
    """Of ` th` the space and t go together first where that pair was learned first; else t and h, and that is all."""
    tokenizer = Tokenizer(TOKENS, MERGES, types=TYPES)
    assert tokenizer.pieces(tokenizer.encode("the th")) == ["t", "h", "e", " th"]
    tokenizer = Tokenizer([*TOKENS, "th"], ["t h", *MERGES], types=[*TYPES, 1])
    assert tokenizer.pieces(tokenizer.encode("the th")) == ["th", "e", " ", "th"]
    tokenizer = Tokenizer([*TOKENS, "aa", "aaaa"], ["a a", "aa aa"], types=[*TYPES, 1, 1])
    assert tokenizer.pieces(tokenizer.encode("aaaaaaa")) == ["aaaa", "aa", "a"]


def test_special_tokens_are_found_longest_first():
    """One may begin like another; in a user's text they are letters when asked for."""
    tokenizer = Tokenizer(TOKENS, MERGES, types=TYPES)
    assert tokenizer.encode("<|end|><|ex")[0] == 256
    assert tokenizer.encode("<|ex") == [257, *tokenizer.encode("x")]
    assert 256 not in tokenizer.encode("<|end|>", special=False)


def test_errors_name_what_was_expected():
    """Unknown cuts, kinds of another number, a token that does not exist, another kind of tokenizer."""
    with pytest.raises(ValueError, match="pre is 'qwen2': expected one of 'gpt-2'"):
        Tokenizer(TOKENS, MERGES, pre="qwen2")
    with pytest.raises(ValueError, match="1 types for 260 tokens"):
        Tokenizer(TOKENS, MERGES, types=[1])
    with pytest.raises(IndexError, match="token 260 is outside the vocabulary: expected 0 to 259"):
        Tokenizer(TOKENS, MERGES).decode([260])
    with pytest.raises(IndexError, match="token -1"):
        Tokenizer(TOKENS, MERGES).decode([-1])
    with pytest.raises(ValueError, match=r"tokenizer\.ggml\.model is 'llama': expected 'gpt2'"):
        Tokenizer.from_metadata({"tokenizer.ggml.model": "llama"})
