"""The extension's settings, and what follows from them: paths in messages, languages, which pages are chapters."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment

from attnbook.claims.catalogue import has_catalogues
from attnbook.claims.domain import ClaimsDomain
from attnbook.claims.numerals import LANGUAGES


def add_settings(app: Sphinx) -> None:
    """Declare the settings of conf.py.

    `claims_root`: the folder that paths in messages and in the ledger are relative to; itself relative to conf.py.
    Default: the parent of the source folder, so that a page of `docs/` is `docs/page.md`.
    `claims_ledger_json`: where the ledger is written, relative to conf.py; default `ledger.json` in the output folder.
    In a build of another language than the source's, `ledger.json` becomes `ledger.ko.json`.
    `claims_source_language`: the language the sources are written in; needed as soon as there are translations.
    `claims_chapters`: patterns of page names (`chapters/*`) that must hold a claim. Default: every page that executes
    code or measures something. An empty list: none must.
    `claims_check_numerals`: must every numeral in prose be a claim? Default: yes.
    """
    app.add_config_value("claims_root", "", "env", types=frozenset({str}))
    app.add_config_value("claims_ledger_json", "", "", types=frozenset({str}))
    app.add_config_value("claims_source_language", "", "env", types=frozenset({str}))
    app.add_config_value("claims_chapters", None, "", types=frozenset({list, tuple, type(None)}))
    app.add_config_value("claims_check_numerals", True, "env", types=frozenset({bool}))


def resolve_paths(app: Sphinx, config: Config) -> None:
    """Make the settings that are paths absolute, once conf.py is read. Handles `config-inited`."""
    folder = Path(app.confdir)
    config.claims_root = str((folder / config.claims_root if config.claims_root else Path(app.srcdir).parent).resolve())
    config.claims_ledger_json = str(
        (folder / (config.claims_ledger_json or Path(app.outdir) / "ledger.json")).resolve()
    )


def relative(env: BuildEnvironment, path: Path | str) -> str:
    """A path as messages show it: relative to the root, with forward slashes."""
    return Path(os.path.relpath(Path(path).resolve(), env.config.claims_root)).as_posix()


def document_of(env: BuildEnvironment, docname: str) -> str:
    """The source of a page, as messages show it."""
    return relative(env, env.doc2path(docname))


def spoken(language: str | None) -> str:
    """The language whose numerals a Sphinx language code asks for; English for a language that we cannot read."""
    primary = (language or "en").replace("-", "_").partition("_")[0].lower()
    return primary if primary in LANGUAGES else "en"


def language_of(env: BuildEnvironment) -> str:
    """The language of this build, as numbers are read."""
    return spoken(env.config.language)


def source_language(env: BuildEnvironment) -> str:
    """The language the sources are written in, as numbers are read."""
    return spoken(env.config.claims_source_language or env.config.language)


def is_translation(env: BuildEnvironment) -> bool:
    """Is this build a translation, in which every message that holds a claim must be translated?

    Without `claims_source_language` it is one if there are catalogues for its language; the gate then asks for the
    setting, since the source's numbers cannot be read.
    """
    source = env.config.claims_source_language
    return str(source) != str(env.config.language) if source else has_catalogues(env)


def chapters(env: BuildEnvironment, domain: ClaimsDomain) -> set[str]:
    """The pages that must hold at least one claim."""
    patterns = env.config.claims_chapters
    if patterns is None:
        return set(domain.chapters())
    return {page for page in env.found_docs if any(fnmatchcase(page, pattern) for pattern in patterns)}


def ledger_path(env: BuildEnvironment) -> Path:
    """Where this build writes its ledger."""
    path = Path(env.config.claims_ledger_json)
    source, language = env.config.claims_source_language, env.config.language
    if source and str(language) != str(source):
        path = path.with_name(f"{path.stem}.{language}{path.suffix}")
    return path
