"""Does a translated message claim what its source does: the same ids in the same roles, and the same numbers?

Each claim of a translation is judged against the measurement too. This is stricter: a number that denotes another
value than the source's is wrong even where the measurement would bear out both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from attnbook.claims.judge import difference, same_number
from attnbook.claims.numerals import Unreadable, read


@dataclass(frozen=True)
class Said:
    """A claim in a message: role, id and written text."""

    role: str
    ident: str
    text: str

    def __str__(self) -> str:
        return f"{self.role} {self.ident or '(malformed)'} {self.text!r}"


def differences(
    source: Sequence[Said], translated: Sequence[Said], source_language: str, language: str
) -> Iterator[tuple[str, str]]:
    """What a translation claims otherwise than its source, each as status and message; nothing where they agree.

    Order is free, as languages order their sentences differently. A claim that both languages write alike, digit for
    digit, is equal without being read.
    """
    for ident in dict.fromkeys(said.ident for said in (*source, *translated)):
        ours = [said for said in source if said.ident == ident]
        theirs = [said for said in translated if said.ident == ident]
        roles, their_roles = sorted(said.role for said in ours), sorted(said.role for said in theirs)
        if not ident or not theirs or not ours or len(ours) != len(theirs):
            yield from _miscounted(ident, ours, theirs, language)
        elif roles != their_roles:
            message = f"{ident} is {' and '.join(roles)} in the source but {' and '.join(their_roles)} in {language}"
            yield "other role", message
        else:
            numbers = [said for said in theirs if said.role == "claim"]
            yield from _other_numbers(
                [said for said in ours if said.role == "claim"], numbers, source_language, language
            )


def _miscounted(ident: str, ours: Sequence[Said], theirs: Sequence[Said], language: str) -> Iterator[tuple[str, str]]:
    if not ident:
        return  # a malformed role is reported where it stands, and its claim is missing here under its own id
    if not theirs:
        yield "missing", f"{ours[0]} of the source is missing in {language}: translate it inside its role"
    elif not ours:
        yield "added", f"{theirs[0]} in {language} is bound to an id that the source message does not quote"
    else:
        status = "missing" if len(theirs) < len(ours) else "added"
        yield status, f"{theirs[0].role} {ident} stands {len(ours)} times in the source but {len(theirs)} in {language}"


def _other_numbers(
    ours: Sequence[Said], theirs: Sequence[Said], source_language: str, language: str
) -> Iterator[tuple[str, str]]:
    left = list(theirs)
    unmatched = []
    for said in ours:
        match = next((other for other in left if _same(said.text, source_language, other.text, language)), None)
        if match is None:
            unmatched.append(said)
        else:
            left.remove(match)
    for said, other in zip(unmatched, left, strict=True):
        what = difference(said.text, source_language, other.text, language)
        message = f"claim {said.ident} says {other.text} in {language} but {said.text} in the source: {what}"
        yield "other number", message


def _same(text: str, language: str, other_text: str, other_language: str) -> bool:
    # What cannot be read fails where it is judged; comparing it here would report it twice.
    readable = _is_readable(text, language) and _is_readable(other_text, other_language)
    return text == other_text or not readable or same_number(text, language, other_text, other_language)


def _is_readable(text: str, language: str) -> bool:
    try:
        read(text, language)
    except Unreadable:
        return False
    return True
