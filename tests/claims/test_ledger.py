"""Reading the ledger that a build left behind, and printing it."""

import json
from dataclasses import replace

import pytest

from attnbook.claims import ledger
from attnbook.claims.entries import Accepts, Failure, Ledger, LedgerEntry

MAX_PROB = LedgerEntry(
    "scaling.max_prob", "claim", "0.87", 0.8712, "", "measured", 0.01,
    Accepts(0.865, 0.875, False, True, "0.865 to 0.875"),
    "fine", "", "book/03-scaling.md", 41, "ja", cell=3, number=0, docname="03-scaling",
)  # fmt: skip
WIDE = replace(
    MAX_PROB, id="scaling.score_ratio", text="約900万", value=8886110.5, line=43, spread=None,
    accepts=Accepts(8.5e6, 9.5e6, False, False, "8.5e+06 to 9.5e+06"),
)  # fmt: skip
LEAK = replace(
    MAX_PROB, id="mask.no_leak", role="holds", text="漏れない", value=True, line=47, accepts=Accepts(text="true")
)
BOOK = Ledger("ja", (MAX_PROB, WIDE, LEAK))


def test_table_aligns_full_width_text():
    """Columns line up on a terminal, where a Japanese character takes two places; the last line sums up."""
    assert ledger.table(BOOK) == (
        "place                  id                   text      value        accepts             kind      verdict\n"
        "book/03-scaling.md:41  scaling.max_prob     0.87      0.8712       0.865 to 0.875      measured  fine\n"
        "book/03-scaling.md:43  scaling.score_ratio  約900万   8.88611e+06  8.5e+06 to 9.5e+06  measured  fine\n"
        "book/03-scaling.md:47  mask.no_leak         漏れない  True         true                measured  fine\n"
        "\n"
        "3 judged, 0 unowned"
    )


def test_a_long_statement_is_shortened_in_the_table():
    """A sentence takes at most forty places of the terminal; JSON has it whole."""
    assert ledger.shortened("未来のトークンは見えない", 40) == "未来のトークンは見えない"
    assert ledger.shortened("未来のトークンは見えない", 11) == "未来のトー…"
    assert ledger.shortened("no future token", 8) == "no futu…"


def test_table_ends_with_every_failure():
    """Failures follow the table as the build printed them, and the sum counts what nobody owns."""
    drift = replace(MAX_PROB, text="0.95", verdict="drift", message="claim scaling.max_prob says 0.95, measured 0.8712")
    failures = (
        Failure("book/03-scaling.md", 41, "drift", drift.message),
        Failure("book/05.md", 7, "unowned", "nobody owns the number 12"),
    )
    printed = ledger.table(Ledger("ja", (drift,), failures))
    assert printed.endswith(
        "\n\nbook/03-scaling.md:41: claim scaling.max_prob says 0.95, measured 0.8712\n"
        "book/05.md:7: nobody owns the number 12\n"
        "\n"
        "1 judged, 1 unowned, 1 not fine"
    )


def test_value_of_an_unknown_id():
    """A claim bound to nothing shows that nothing was measured."""
    entry = replace(MAX_PROB, value=None, unit="", accepts=Accepts(), kind="", verdict="unknown id")
    assert ledger.value_text(entry) == "nothing"
    assert "  -  " in ledger.table(Ledger("ja", (entry,)))


@pytest.mark.parametrize(
    ("changed", "fine"),
    [
        (BOOK, True),
        (Ledger("ja"), False),
        (replace(BOOK, failures=(Failure("book/05.md", 7, "unowned", "…"),)), False),
        (replace(BOOK, entries=(replace(MAX_PROB, verdict="fragile"),)), False),
    ],
)
def test_what_is_fine(changed, fine):
    """A ledger is fine if it has claims, all of them hold, and nothing else failed."""
    assert ledger.is_fine(changed) is fine


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[]", "is JSON but no ledger"),
        ('{"version": 1}', "is JSON but no ledger (KeyError: 'claims')"),
        ('{"version": 7}', "ledger version 7, expected 1: build again"),
        ('{"version": 1, "language": "ja", "failures": [], "claims": [{"id": "a.b"}]}', "is JSON but no ledger"),
    ],
)
def test_what_is_no_ledger(tmp_path, content, message):
    """A file that is no ledger is named, and what is wrong with it."""
    path = tmp_path / "ledger.json"
    path.write_text(content)
    with pytest.raises(ledger.NoLedger) as refused:
        ledger.load(path)
    assert str(path) in str(refused.value)
    assert message in str(refused.value)


def test_what_was_written_is_loaded(tmp_path):
    """A ledger written to a file comes back equal."""
    BOOK.write(tmp_path / "ledger.json")
    assert ledger.load(tmp_path / "ledger.json") == BOOK


def test_a_folder_is_no_ledger(tmp_path):
    """A path that cannot be read says why."""
    with pytest.raises(ledger.NoLedger, match="cannot read"):
        ledger.load(tmp_path)
    with pytest.raises(ledger.NoLedger, match=r"there is no ledger at .*missing\.json: a build writes it$"):
        ledger.load(tmp_path / "missing.json")


def test_json_has_what_the_table_has(tmp_path):
    """`ledger.json` holds each claim's id, text, value, unit, kind, interval, verdict, place, language and cell."""
    BOOK.write(tmp_path / "ledger.json")
    claim = json.loads((tmp_path / "ledger.json").read_text())["claims"][0]
    assert {
        "id", "text", "value", "unit", "kind", "accepts", "verdict", "document", "line", "language", "cell",
    } <= set(claim)  # fmt: skip
