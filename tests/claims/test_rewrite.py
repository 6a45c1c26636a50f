"""A drifted literal is rewritten in its source, in the form and at the precision in which it was written."""

from dataclasses import replace

import pytest

from attnbook.claims import rewrite
from attnbook.claims.entries import Accepts, Ledger, LedgerEntry
from attnbook.claims.rewrite import CannotRewrite, apply, find_root, literal, outdated, plan
from attnbook.measure import Measurement

RATIO = LedgerEntry(
    "bread.ratio", "claim", "約900万", 1.23e7, "ratio", "measured", None,
    Accepts(8.5e6, 9.5e6, False, False, "8.5e+06 to 9.5e+06"), "drift",
    "claim bread.ratio says 約900万, measured 1.23e+07", "book/01-bread.md", 5, "ja", number=0, docname="01-bread",
)  # fmt: skip

PAGE = """\
(bread)=
# パン

```md
比は {claim}`約900万 <bread.ratio>` です。
```

比は {claim}`約900万 <bread.ratio>` です。{claim}`8 GiB <bread.size>` と {holds}`焼けた <bread.baked>` を見ます。
"""


@pytest.fixture
def book(tmp_path):
    """A project of one page, with one claim in an example above the real one."""
    path = tmp_path / "book" / "01-bread.md"
    path.parent.mkdir()
    path.write_bytes(PAGE.encode())
    return tmp_path


def made(value, unit="", spread=None):
    return Measurement("bread.ratio", value, unit, spread=spread)


@pytest.mark.parametrize(
    ("written", "measurement", "language", "new"),
    [
        ("0.95", made(0.87), "ja", "0.87"),
        ("約900万", made(12345678.0), "ja", "約1200万"),  # one digit would reach only to 1100万
        ("98%", made(0.873, "ratio"), "en", "87%"),
        ("8 GiB", made(17179869184, "B"), "en", "16 GiB"),
        ("3000 ms", made(2.0, "s"), "en", "2000 ms"),
        ("95%以上", made(0.873, "ratio", 0.004), "ja", "86%以上"),
        ("1e-6未満", made(2.3e-6), "ja", "3e-6未満"),
    ],
)
def test_literal_is_fine_for_the_judge(written, measurement, language, new):
    """The new literal is in the written unit, and the judge accepts it."""
    assert literal(written, measurement, language) == new


@pytest.mark.parametrize(
    ("written", "measurement", "reason"),
    [
        ("0.95", made(0.8712, spread=0.01), "at the precision written it would be 0.87, which is fragile; could be "),
        ("3", made(3.2), "at the precision written it would be 3, which is drift; could be "),
        ("半分", made(0.3, "ratio"), "'半分' is written in words; could be "),
        ("0.95", made(float("nan")), "nan was measured, which no number says"),
        ("0.95", made(float("inf")), "inf was measured, which no number says"),
        ("0.95", made(True), "True was measured, which no number says"),
        ("128k", made(131072), "cannot read '128k'"),
        ("2-3", made(2.5), "cannot read '2-3'"),
        ("8 GiB", made(8), "at the precision written it would be "),
        ("3", made(3, "loaves"), "the unit 'loaves' is not known"),
        ("?", made(3), "cannot read '?'"),
    ],
)
def test_literal_refuses_with_a_reason(written, measurement, reason):
    """What cannot be rewritten mechanically says why, and offers literals where there are any."""
    with pytest.raises(CannotRewrite) as refused:
        literal(written, measurement, "ja")
    assert str(refused.value).startswith(reason)


def test_the_claim_is_rewritten_and_the_example_is_not(book):
    """Of equal roles the one nearest to the line that the build named is changed; all else stays byte by byte."""
    entry = replace(RATIO, line=8)
    edits, refusals = plan(Ledger("ja", (entry,)), ["bread.ratio"], book)
    assert not refusals
    (source,) = apply(edits, book)
    assert source.new == "約1200万 <bread.ratio>".join(PAGE.rsplit("約900万 <bread.ratio>", 1))
    assert source.diff().splitlines()[:2] == ["--- book/01-bread.md", "+++ book/01-bread.md"]
    assert sum(line.startswith("+") for line in source.diff().splitlines()) == 2
    assert (book / "book" / "01-bread.md").read_bytes() == PAGE.encode()
    rewrite.write(source)
    assert (book / "book" / "01-bread.md").read_bytes() == source.new.encode()


def test_two_claims_on_one_line(book):
    """Several literals of one line change together, equal ones too."""
    line = "{claim}`3 <bread.a>` と {claim}`3 <bread.a>` と {claim}`5 <bread.b>`。\r\n"
    (book / "book" / "01-bread.md").write_bytes(line.encode())
    a = replace(RATIO, id="bread.a", text="3", value=7, unit="", line=1)
    entries = (a, replace(a, number=1), replace(a, id="bread.b", text="5", value=11, number=2))
    edits, _ = plan(Ledger("ja", entries), ["bread.a", "bread.b"], book)
    (source,) = apply(edits, book)
    assert source.new == "{claim}`7 <bread.a>` と {claim}`7 <bread.a>` と {claim}`11 <bread.b>`。\r\n"


def test_restructured_text_is_rewritten_too(book):
    """The role in reStructuredText's form."""
    (book / "book" / "rye.rst").write_text("Rye\n===\n\nBake :claim:`0.95 <bread.ratio>` of it.\n")
    entry = replace(RATIO, text="0.95", value=0.87, unit="", document="book/rye.rst", line=4, language="en")
    edits, _ = plan(Ledger("en", (entry,)), ["bread.ratio"], book)
    (source,) = apply(edits, book)
    assert source.new.endswith("Bake :claim:`0.87 <bread.ratio>` of it.\n")


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (
            replace(RATIO, role="holds", text="焼けた", value=False, verdict="false"),
            "a statement has no number to rewrite: write the sentence anew, or mend the code",
        ),
        (replace(RATIO, po="book/locales/ko/LC_MESSAGES/01-bread.po", po_line=3), "it stands in a translation"),
        (replace(RATIO, value=None, verdict="unknown id"), "nothing with this id was measured: mend the id"),
        (replace(RATIO, verdict="stale"), "its record is stale: measure again"),
        (replace(RATIO, document="book/01-bread.ipynb"), "only .md, .rst, .txt files are rewritten"),
        (replace(RATIO, document="book/none.md"), "there is no book/none.md in "),
        (replace(RATIO, text="半分"), "'半分' is written in words; could be "),
    ],
)
def test_what_a_person_must_mend_is_refused(book, entry, reason):
    """The refusal names the place, the claim and the reason; nothing is edited."""
    edits, (refusal,) = plan(Ledger("ja", (entry,)), ["bread.ratio"], book)
    assert not edits
    assert refusal.reason.startswith(reason)
    assert str(refusal).startswith(f"{entry.place}: {entry.role} bread.ratio says {entry.text}: ")


def test_what_is_fine_is_left_alone(book):
    """A claim on the same id that holds is not touched."""
    assert plan(Ledger("ja", (replace(RATIO, verdict="fine"),)), ["bread.ratio"], book) == ([], [])


def test_an_unknown_id_is_an_error(book):
    """Asking for an id that no claim quotes names it."""
    with pytest.raises(CannotRewrite, match=r"no claim quotes bread\.rye, bread\.oat"):
        plan(Ledger("ja", (RATIO,)), ["bread.rye", "bread.ratio", "bread.oat"], book)


def test_a_source_that_moved_on_is_an_error(book):
    """If the text is no longer there the build is out of date, and nothing is guessed."""
    edits, _ = plan(Ledger("ja", (RATIO,)), ["bread.ratio"], book)
    (book / "book" / "01-bread.md").write_text("# パン\n")
    with pytest.raises(CannotRewrite, match=r"01-bread\.md:5: bread\.ratio no longer says 約900万: build again"):
        list(apply(edits, book))


def test_a_role_over_two_lines_is_an_error(book):
    """A role that is spread over lines is found but not rewritten."""
    (book / "book" / "01-bread.md").write_text("比は {claim}`約900万\n<bread.ratio>` です。\n")
    edits, _ = plan(Ledger("ja", (RATIO,)), ["bread.ratio"], book)
    with pytest.raises(CannotRewrite, match=r"write the role of bread\.ratio on one line, with single spaces"):
        list(apply(edits, book))


def test_translations_that_differ_are_named(book):
    """Only the translations of the message that changes, and only where their number is another than the new one."""
    for language, text in (("ko", "약 900만"), ("en", "about 12 million")):
        path = book / "book" / "locales" / language / "LC_MESSAGES" / "01-bread.po"
        path.parent.mkdir(parents=True)
        path.write_text(
            'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
            'msgid "比は {claim}`約900万 <bread.ratio>` です。"\n'
            f'msgstr ""\n"It is "\n"{{claim}}`{text} <bread.ratio>`."\n\n'
            'msgid "別の {claim}`900万 <bread.ratio>` です。"\n'
            'msgstr "Other {claim}`9 million <bread.ratio>`."\n'
        )
    edits, _ = plan(Ledger("ja", (RATIO,)), ["bread.ratio"], book)
    assert list(outdated(edits, book)) == [
        "book/locales/ko/LC_MESSAGES/01-bread.po:5: claim bread.ratio says 약 900만, the source will say 約1200万"
    ]


def test_root_is_where_the_sources_are(book):
    """The folder that paths are relative to is found from the ledger's own place; it is an error if none has them."""
    ledger_file = book / "book" / "_build" / "ledger.json"
    assert find_root(Ledger("ja", (RATIO,)), ledger_file) == book
    with pytest.raises(CannotRewrite, match=r"the sources of ledger\.json lie in no folder above it"):
        find_root(Ledger("ja", (replace(RATIO, document="book/none.md"),)), ledger_file)


def test_a_read_only_source_stays_as_it_is(book, monkeypatch):
    """A write that fails says so and leaves the source whole."""
    edits, _ = plan(Ledger("ja", (RATIO,)), ["bread.ratio"], book)
    (source,) = apply(edits, book)

    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rewrite, "write_whole", full)
    with pytest.raises(CannotRewrite, match=r"cannot write book/01-bread\.md: No space left on device; it is"):
        rewrite.write(source)
    assert (book / "book" / "01-bread.md").read_bytes() == PAGE.encode()
