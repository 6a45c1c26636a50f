"""The gate: judges every claim of every page at the end of reading, from stored data, at every build.

`env-updated` is the one moment that always comes, also when no page changed, and before pages are written. Nothing is
raised there: that would throw the environment away. Failures are collected, printed as one list, and the exit status
is 1 until they are mended, with or without `-W`.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

from attnbook.claims.collect import CELL_ANCHOR
from attnbook.claims.domain import Claim, ClaimsDomain, Measured, claims_domain
from attnbook.claims.entries import Accepts, Failure, Ledger, LedgerEntry, in_order
from attnbook.claims.judge import Interval, judge
from attnbook.claims.settings import chapters, document_of, is_translation, ledger_path, relative
from attnbook.measure import Measurement, format_value

LOGGER = logging.getLogger(__name__)
EVENT = "claims-check"
"""Emitted with the domain before the verdict: a handler returns `Failure`s found in the book as a whole."""

Known = Mapping[str, tuple[str, Measured]]
"""Id to the page that measured it and the measurement."""


def judge_book(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Judge everything, print the failures, write the ledger; the pages to write again, since what they show changed.

    Handles `env-updated`.
    """
    domain = claims_domain(env)
    known, conflicts = _measurements(env, domain)
    entries = tuple(_entry(env, docname, claim, known) for docname, claim in domain.claims())
    failures = [
        *_read_problems(env, domain),
        *conflicts,
        *(Failure(*_place(entry), entry.verdict, _explained(entry)) for entry in entries if _is_news(entry)),
        *_unquoted(env, domain, known),
        *_without_claims(env, domain),
        *_misconfigured(app, env),
        *(failure for found in app.events.emit(EVENT, domain) for failure in found or ()),
    ]
    ledger = Ledger(str(env.config.language), entries, in_order(failures))
    domain.judged(ledger)
    _report(app, env, ledger)
    return _changed_pages(app, domain, ledger)


def closing_line(app: Sphinx, exception: Exception | None) -> None:
    """Say in one line what the gate found, as the last thing of a build. Handles `build-finished`."""
    ledger = claims_domain(app.env).ledger if exception is None else None
    if ledger is None:
        return
    failed = f"{len(ledger.failures)} failed"
    LOGGER.info(
        "claims: %d judged, %s, %d unowned (%s)", ledger.judged, failed, ledger.unowned, app.config.language
    )  # fmt: skip


# -- measurements -----------------------------------------------------------------------------------------------------


def _measurements(env: BuildEnvironment, domain: ClaimsDomain) -> tuple[Known, list[Failure]]:
    """Every measurement by its id, the first one made, and the ids that were measured again with another value."""
    known: dict[str, tuple[str, Measured]] = {}
    conflicts = []
    for docname, made in domain.measured():
        new = made.measurement
        first_page, first = known.setdefault(new.id, (docname, made))
        if _amount(new) != _amount(first.measurement):
            here, there = _made_at(env, docname, made), _made_at(env, first_page, first)
            before, now = _amount_text(first.measurement), _amount_text(new)
            places = f"{now} in {here}, {before} in {there}" if here != there else f"{before}, then {now}, in {here}"
            message = f"{new.id} is measured twice with different values: {places}"
            conflicts.append(Failure(document_of(env, docname), made.line, "two values", message))
    return known, conflicts


def _amount(measurement: Measurement) -> tuple[str, str]:
    # As text, so that NaN equals NaN and True is not 1.
    return repr(measurement.value), measurement.unit


def _amount_text(measurement: Measurement) -> str:
    value = measurement.value
    # Two reals that differ in the last digits must not look equal in the message that says they differ.
    text = repr(value) if isinstance(value, float) else format_value(value)
    return f"{text} {measurement.unit}".rstrip()


def _made_at(env: BuildEnvironment, docname: str, made: Measured) -> str:
    cell = f" cell {made.cell}" if made.cell is not None else f":{made.line}"
    by = f" by {made.measurement.experiment}" if made.measurement.experiment else ""
    return f"{document_of(env, docname)}{cell}{by}"


def _unquoted(env: BuildEnvironment, domain: ClaimsDomain, known: Known) -> Iterator[Failure]:
    quoted = {claim.ident for _, claim in domain.claims()}
    # What the source quotes and a translation lost is reported as missing there.
    quoted |= {ident for _, message in domain.messages() for _, ident, _ in message.claims}
    malformed = [claim.message for _, claim in domain.claims() if claim.status == "malformed"]
    for ident, (docname, made) in known.items():
        if made.measurement.quote and ident not in quoted and not _names(ident, malformed):
            cell = f" in cell {made.cell}" if made.cell is not None else ""
            message = f"{ident} is measured{cell} to be quoted, and no page quotes it: quote it, or say quote=False"
            yield Failure(document_of(env, docname), made.line, "quoted nowhere", message)


def _names(ident: str, malformed: Sequence[str]) -> bool:
    """Does a malformed role name the id (a.bc and a.b.c do not name a.b)? Then the one mistake is reported already."""
    named = re.compile(rf"(?<![\w.]){re.escape(ident)}(?!\w|\.\w)")
    return any(map(named.search, malformed))


# -- claims -----------------------------------------------------------------------------------------------------------


def _entry(env: BuildEnvironment, docname: str, claim: Claim, known: Known) -> LedgerEntry:
    page, made = known.get(claim.ident, ("", None))
    if made is None:
        status, message, interval = claim.status, claim.message, None
        if not status:
            status, message = "unknown id", _unknown(claim, known)
        measurement = Measurement(claim.ident, False, kind="measured")
    else:
        measurement = made.measurement
        verdict = judge(claim.text, measurement, claim.role, claim.language)
        status, message, interval = verdict.status, verdict.message, verdict.accepts
        if claim.status:
            status, message = claim.status, claim.message
    return LedgerEntry(
        id=claim.ident, role=claim.role, text=claim.text,
        value=measurement.value if made else None, unit=measurement.unit, kind=measurement.kind if made else "",
        spread=measurement.spread, accepts=_accepts(claim.role, interval), verdict=status, message=message,
        document=claim.document, line=claim.line, language=claim.language, po=claim.po, po_line=claim.po_line,
        measured_in=document_of(env, page) if made else "", cell=made.cell if made else None,
        experiment=measurement.experiment, settings=_written(measurement.settings), device=measurement.device,
        date=measurement.date, source=measurement.source, derived_from=measurement.sources,
        docname=docname, number=claim.number, measured_docname=page,
        cell_anchor=CELL_ANCHOR.format(made.cell) if made and made.cell is not None else "",
    )  # fmt: skip


def _written(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that can be written down: not a reader's function, whose text is an address of this execution."""
    return {name: text for name, text in settings.items() if " at 0x" not in text}


def _unknown(claim: Claim, known: Known) -> str:
    near = difflib.get_close_matches(claim.ident, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "no page measures it"
    return f"{claim.role} {claim.ident} says {claim.text}, but nothing is measured under that id: {hint}"


def _accepts(role: str, interval: Interval | None) -> Accepts:
    if role == "holds":
        return Accepts(text="true")
    if interval is None:
        return Accepts()
    low = None if interval.low is None else _float(interval.low)
    high = None if interval.high is None else _float(interval.high)
    return Accepts(low, high, interval.low_open, interval.high_open, interval.text)


def _float(number: object) -> float:
    try:
        return float(number)  # type: ignore[arg-type]
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")  # type: ignore[operator]


def _is_news(entry: LedgerEntry) -> bool:
    # A message that is not translated is reported once for all its claims, where it stands.
    return not entry.fine and entry.verdict != "untranslated"


def _place(entry: LedgerEntry) -> tuple[str, int]:
    return (entry.po, entry.po_line) if entry.po else (entry.document, entry.line)


def _explained(entry: LedgerEntry) -> str:
    """The message of a failed claim, and below it where the value comes from."""
    if not entry.measured_in or entry.verdict in ("misplaced", "malformed"):
        return entry.message
    cell = f" cell {entry.cell}" if entry.cell is not None else ""
    parts = [f"measured in {entry.measured_in}{cell}"]
    if entry.kind in ("recorded", "cited"):
        parts = [f"{entry.kind} in {entry.measured_in}{cell} from {entry.source}"]
    if entry.experiment:
        parts[0] += f" by {entry.experiment}"
    if entry.kind == "derived":
        parts.append(f"derived from {' and '.join(entry.derived_from)}")
    if entry.device:
        parts.append(f"on {entry.device}")
    if entry.date:
        parts.append(f"on {entry.date}" if not entry.device else entry.date)
    if entry.spread is not None:
        parts.append(f"standard deviation {entry.spread:.2g}")
    return f"{entry.message}\n  {', '.join(parts)}"


# -- the book as a whole ----------------------------------------------------------------------------------------------


def _read_problems(env: BuildEnvironment, domain: ClaimsDomain) -> Iterator[Failure]:
    for docname, problem in domain.problems():
        document = problem.document or document_of(env, docname)
        yield Failure(document, problem.line, problem.status, problem.message)


def _without_claims(env: BuildEnvironment, domain: ClaimsDomain) -> Iterator[Failure]:
    pages = {docname for docname, _ in domain.claims()}
    if not pages:
        page = document_of(env, env.config.root_doc)
        yield Failure(page, 1, "no claims", "no claims found at all: a book without one is not checked")
        return
    for docname in sorted(chapters(env, domain) - pages):
        message = "a chapter without a single claim: quote a measurement, or leave it out of claims_chapters"
        yield Failure(document_of(env, docname), 1, "no claims", message)


def _misconfigured(app: Sphinx, env: BuildEnvironment) -> Iterator[Failure]:
    if is_translation(env) and not env.config.claims_source_language:
        message = (
            f"there are catalogues for {env.config.language}: set claims_source_language, or they cannot be judged"
        )
        yield Failure(relative(env, f"{app.confdir}/conf.py"), 1, "configuration", message)


# -- report -----------------------------------------------------------------------------------------------------------


def _report(app: Sphinx, env: BuildEnvironment, ledger: Ledger) -> None:
    try:
        ledger.write(ledger_path(env))
    except OSError as error:
        app.statuscode = 1
        where = relative(env, ledger_path(env))
        LOGGER.error("%s: the ledger cannot be written: %s", where, error.strerror or error)
    if not ledger.failures:
        return
    app.statuscode = 1
    count = len(ledger.failures)
    text = "\n".join(map(str, ledger.failures))
    end = "The build fails until this is mended." if count == 1 else f"The build fails until these {count} are mended."
    # One record, so that nothing comes between; each failure starts its own line with its place, as editors expect it.
    # Without a type: suppress_warnings must not leave a red build without its reasons.
    LOGGER.error("claims that fail (%s):\n%s\n%s", app.config.language, text, end)


def _changed_pages(app: Sphinx, domain: ClaimsDomain, ledger: Ledger) -> list[str]:
    """The pages whose claims show something else than this builder wrote last time."""
    parts: dict[str, list[str]] = {}
    for entry in ledger.entries:
        parts.setdefault(entry.docname, []).append(repr(entry))
    everything = [*(repr(entry) for entry in ledger.entries), *map(str, ledger.failures)]
    for docname in domain.readers():
        parts[docname] = everything
    new = {docname: hashlib.sha256("\n".join(texts).encode()).hexdigest() for docname, texts in parts.items()}
    shown = domain.data["shown"].setdefault(app.builder.name, {})
    changed = sorted(page for page in new if page in shown and shown[page] != new[page])
    if shown != new:
        domain.data["shown"][app.builder.name] = new
    return [page for page in changed if page in app.env.found_docs]
