r"""Text to tokens and back by byte-level BPE, from the vocabulary and the merges of a GGUF file alone.

    "It's 42."  ── cut ──▶  It │ 's │ ␣ │ 4 │ 2 │ .   ── bytes, pairs merged in the order of the merges ──▶  tokens

A token is bytes, not letters: 「注」 may be three tokens. In the vocabulary each byte is written as one visible letter
(`Ġ` is the space), a convention of GPT-2. Which cuts are made before any merge, the file only names, by
`tokenizer.ggml.pre`: here those of GPT-2, and those of "smollm" and its like, where every digit also stands alone.

What stands out: the cuts are Python's own `re`. Its `\w` without `_` is exactly Unicode's letters and numbers, and
once the numbers have been cut off, exactly its letters. Letters are those of this Python's Unicode version.
Sennrich et al. 2016; Radford et al. 2019, section 2.2.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

CONTROL, USER_DEFINED = 3, 4
"""Kinds of tokens that are found in a text as they are written, before it is cut."""

_SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""Unicode's White_Space. Python's `\\s` has four separators more, from U+001C to U+001F."""


def _cuts(letter: str, other: str, number: str = "") -> re.Pattern[str]:
    """GPT-2's pattern with what it calls a letter, a number, and neither of them nor space."""
    numbers = f"| ?{number}+" if number else ""
    return re.compile(
        rf"'s|'t|'re|'ve|'m|'ll|'d| ?{letter}+{numbers}| ?{other}+|[{_SPACE}]+(?![^{_SPACE}])|[{_SPACE}]+"
    )


@functools.cache
def _number_class() -> str:
    r"""Unicode's numbers (Nd, Nl, No), also ½ and Ⅷ, as a class of `re`; for `\d` has only the decimal digits."""
    numbers = [x for x in range(0x110000) if unicodedata.category(chr(x)).startswith("N")]
    runs = itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0])
    ends = [(run[0][1], run[-1][1]) for run in (list(pairs) for _, pairs in runs)]
    return "[" + "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in ends) + "]"


def cut_gpt2(text: str) -> list[str]:
    """As GPT-2: letters, numbers or neither, each with one space before it; what space is left stands alone."""
    return _gpt2().findall(text)


def cut_single_digits(text: str) -> list[str]:
    """As SmolLM2, StarCoder and others: every number's letter is cut out first, the rest is GPT-2's.

    What stands before a digit ends there: a space is not the digit's, and several stay together.
    """
    digits, rest = _single_digits()
    return [
        piece for part in digits.split(text) for piece in ([part] if digits.fullmatch(part) else rest.findall(part))
    ]


@functools.cache
def _gpt2() -> re.Pattern[str]:
    number = _number_class()
    return _cuts(rf"(?:(?!{number})[^\W_])", rf"(?:[^\w{_SPACE}]|_)", number)


@functools.cache
def _single_digits() -> tuple[re.Pattern[str], re.Pattern[str]]:
    return re.compile(f"({_number_class()})"), _cuts(r"[^\W_]", rf"(?:[^\w{_SPACE}]|_)")


PRE = {
    **dict.fromkeys(("gpt-2", "olmo", "mpt"), cut_gpt2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), cut_single_digits),
}
"""The cuts by the names that files give them."""


def byte_letters() -> dict[int, str]:
    """Each byte's letter in GPT-2's vocabularies: itself where it is visible in Latin-1, else the next from U+0100."""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in visible]
    letters = {byte: chr(byte) for byte in visible} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}
    return dict(sorted(letters.items()))


_LETTERS = byte_letters()
_BYTES = {letter: byte for byte, letter in _LETTERS.items()}
_NEVER = float("inf")
"""The rank of a pair that is not merged."""


class Tokenizer:
    """Encodes and decodes; `tokens[i]` is how the file writes token i, and len(tokenizer) how many there are.

    - `merges`: pairs of a vocabulary's entries, "Ġ t", the first merged first.
    - `types`: the file's kind of each token; those of control and those that a user defined are never cut.
    - `pre`: the name of the cuts.

    Raises ValueError for cuts that are not in `PRE`, or where `types` has another length.
    """

    def __init__(
        self, tokens: Sequence[str], merges: Sequence[str], *, types: Sequence[int] | None = None, pre: str = "smollm"
    ) -> None:
        if pre not in PRE:
            raise ValueError(f"pre is {pre!r}: expected one of {', '.join(map(repr, PRE))}")
        types = [1] * len(tokens) if types is None else types
        if len(types) != len(tokens):
            raise ValueError(f"{len(types)} types for {len(tokens)} tokens: expected one each")
        self.tokens = list(tokens)
        self._cut = PRE[pre]
        self._ids = {token: i for i, token in enumerate(tokens)}
        self._ranks = {merge: rank for rank, merge in enumerate(merges)}
        self._whole = frozenset(i for i, kind in enumerate(types) if kind in (CONTROL, USER_DEFINED))
        # The longest first: one may begin with another.
        written = sorted((self.tokens[i] for i in self._whole), key=len, reverse=True)
        self._special = re.compile(f"({'|'.join(map(re.escape, written))})") if written else None
        self._piece = functools.lru_cache(maxsize=1 << 16)(self._merged)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """From what a GGUF file says. Raises ValueError for a model that is not byte-level BPE ("gpt2")."""
        model = metadata.get("tokenizer.ggml.model")
        if model != "gpt2":
            raise ValueError(f"tokenizer.ggml.model is {model!r}: expected 'gpt2', byte-level BPE")
        return cls(
            metadata["tokenizer.ggml.tokens"],
            metadata["tokenizer.ggml.merges"],
            types=metadata.get("tokenizer.ggml.token_type"),
            pre=metadata.get("tokenizer.ggml.pre", "gpt-2"),
        )

    def __len__(self) -> int:
        """How many tokens there are."""
        return len(self.tokens)

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The tokens of a text; with `special`, `<|im_start|>` written out is that one token, without it 5 or so.

        Nothing is added before or behind. A byte that the vocabulary does not have is left out, as the original does.
        Raises UnicodeEncodeError for half of a surrogate pair, which has no bytes.
        """
        parts = self._special.split(text) if special and self._special is not None else [text]
        found: list[int] = []
        for i, part in enumerate(parts):  # split puts what is between at even places, what was found at odd ones
            found += (
                [self._ids[part]] if i % 2 else (token for piece in self._cut(part) for token in self._piece(piece))
            )
        return found

    def decode(self, tokens: Iterable[int], *, special: bool = True) -> str:
        """The text of tokens; bytes that are no UTF-8 become �. Without `special` those of control are left out.

        Raises IndexError for a token outside the vocabulary.
        """
        whole = ((i, self._bytes(i)) for i in map(int, tokens))
        return b"".join(x for i, x in whole if special or i not in self._whole).decode(errors="replace")

    def pieces(self, tokens: Iterable[int]) -> list[str]:
        """Each token's own text, to write it under a column: half a letter is a �."""
        return [self.decode([i]) for i in tokens]

    def _bytes(self, i: int) -> bytes:
        if not 0 <= i < len(self.tokens):
            raise IndexError(f"token {i} is outside the vocabulary: expected 0 to {len(self.tokens) - 1}")
        if i in self._whole:
            return self.tokens[i].encode()
        return bytes(_BYTES[letter] for letter in self.tokens[i])

    def _merged(self, piece: str) -> tuple[int, ...]:
        """The tokens of one piece: of all neighbours the pair that was learned first is merged, until none is left."""
        parts = [_LETTERS[byte] for byte in piece.encode()]
        while len(parts) > 1:
            first = min(itertools.pairwise(parts), key=self._rank)
            if self._rank(first) == _NEVER:
                break
            parts = list(_merge(parts, first))
        return tuple(self._ids[part] for part in parts if part in self._ids)

    def _rank(self, pair: tuple[str, str]) -> float:
        return self._ranks.get(f"{pair[0]} {pair[1]}", _NEVER)


def _merge(parts: list[str], pair: tuple[str, str]) -> Iterator[str]:
    """The parts with every occurrence of a pair made one, from the left."""
    i = 0
    while i < len(parts):
        both = i + 1 < len(parts) and (parts[i], parts[i + 1]) == pair
        yield pair[0] + pair[1] if both else parts[i]
        i += 2 if both else 1
