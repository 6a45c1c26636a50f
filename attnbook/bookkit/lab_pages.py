"""`{lab-exercise}`, `{lab-hints}`, `{lab-solution}`: a step of the lab on a page, made from its one solution.

    ```{lab-exercise} 1
    ```

shows the code that a reader begins with and links to it as a Python file and as a notebook, which are written beside
the pages, in `lab/files`. `{lab-hints} 1` has the hints, each folded within the one before; `{lab-solution} 1` the
solution, folded. All of it is in the language of the build and no text for translators, so it is filled in when the
page is written; that happens after claims are judged, and the numbers in a hint are the exercise's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from docutils import nodes
from sphinx.util.docutils import SphinxDirective
from sphinx.util.osutil import relative_uri

from attnbook.bookkit import problems
from attnbook.bookkit.folded import folded, folded_title

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

    from attnbook.lab.texts import Language

FILES: Final = "lab/files"
"""Where the files to download lie in the built site."""


class lab_place(nodes.General, nodes.Element):
    """Where something of a step goes. Attributes: shows ("exercise", "hints", "solution"), key."""


class lab_files(nodes.General, nodes.Element):
    """The links to an exercise's files. Attributes: links, pairs of an address from the site's root and a label."""


class LabDirective(SphinxDirective):
    """One of the three directives; see the module."""

    required_arguments = 1
    has_content = False
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """A placeholder; a step that there is not, or whose texts are not complete, is a failure of the page."""
        from attnbook.lab.exercise import ExerciseError, exercise_notebook, exercise_source

        key, lang = self.arguments[0], _language(self.config.language)
        try:
            self._depends(key)
            exercise_source(key, lang)
            exercise_notebook(key, lang)
        except (KeyError, ExerciseError) as error:
            problems.report(self.env, self.lineno, "lab", str(error.args[0]))
            return []
        shows = self.name.removeprefix("lab-")
        if shows == "exercise":
            _shown(self.env).setdefault(self.env.current_document.docname, set()).add(key)
        return [lab_place(shows=shows, key=key)]

    def _depends(self, key: str) -> None:
        """Have the page read again when what it shows has changed."""
        from attnbook.lab.steps import FILES, step

        stem = step(key).stem
        for package, name in (
            *(("attnbook.lab", name) for name in ("exercise.py", "folder.toml")),
            *(("attnbook.lab.steps", f"{FILES[key]}{suffix}") for suffix in (".py", ".toml")),
            ("attnbook.lab.solutions", f"{stem}.py"),
        ):
            self.env.note_dependency(str(resources.files(package) / name))


def _language(name: str | None) -> Language:
    """The lab's language for a build; English for one that the lab does not speak."""
    from attnbook.lab.texts import language

    try:
        return language(name or "en")
    except ValueError:
        return "en"


def fill(app: Sphinx, doctree: nodes.document, _docname: str) -> None:
    """Put in what the directives stand for."""
    lang = _language(app.config.language)
    draw = {"exercise": _exercise, "hints": _hints, "solution": _solution}
    for place in list(doctree.findall(lab_place)):
        drawn = list(draw[place["shows"]](place["key"], lang))
        place.replace_self(drawn if app.builder.format == "html" else [_unfolded(node) for node in drawn])


def _exercise(key: str, lang: Language) -> Iterator[nodes.Node]:
    from attnbook.lab.exercise import exercise_source
    from attnbook.lab.steps import step
    from attnbook.lab.texts import say

    yield _code(exercise_source(key, lang))
    stem = step(key).stem
    labels = {".py": say(lang, "pages.download_python"), ".ipynb": say(lang, "pages.download_notebook")}
    yield lab_files(links=[(f"{FILES}/{stem}{suffix}", label) for suffix, label in labels.items()])


def _solution(key: str, lang: Language) -> Iterator[nodes.Node]:
    from attnbook.lab.exercise import solution_source
    from attnbook.lab.texts import say

    yield _fold(say(lang, "pages.solution"), [_code(solution_source(key, lang))])


def _hints(key: str, lang: Language) -> Iterator[nodes.Node]:
    from attnbook.lab.texts import say, texts

    hints = texts(key).hints(lang)
    inner: list[nodes.Node] = []
    for stage in range(len(hints), 0, -1):
        which = "first" if stage == 1 else "last" if stage == len(hints) else "next"
        inner = [_fold(say(lang, f"pages.hint_{which}"), [*paragraphs(hints[stage - 1]), *inner])]
    yield from inner


def _fold(title: str, body: Iterable[nodes.Node]) -> folded:
    """Like the other solutions of the book, once `FoldAdmonitions` has seen them."""
    label = folded_title("", title, classes=["admonition-title"])
    return folded("", label, *body, classes=["admonition", "dropdown"])


def _unfolded(node: nodes.Node) -> nodes.Node:
    """The same as an ordinary admonition, for a format in which nothing folds."""
    if not isinstance(node, folded):
        return node
    title, *body = node.children
    return nodes.admonition("", nodes.title("", title.astext()), *map(_unfolded, body))


def _code(text: str) -> nodes.literal_block:
    return nodes.literal_block(text, text, language="python")


def paragraphs(text: str) -> Iterator[nodes.paragraph]:
    """A hint's text: paragraphs between empty lines, code between backquotes."""
    for paragraph in text.split("\n\n"):
        node = nodes.paragraph()
        for place, piece in enumerate(" ".join(paragraph.split("\n")).split("`")):
            if piece:
                node += nodes.literal(piece, piece) if place % 2 else nodes.Text(piece)
        yield node


def visit_files(translator: Any, node: lab_files) -> None:
    """Write the links, from where the page is: they work without a server, too."""
    builder = translator.builder
    here = builder.get_target_uri(builder.current_docname)
    links = (
        f'<a class="lab-file" href="{escape(relative_uri(here, address))}" download>{escape(label)}</a>'
        for address, label in node["links"]
    )
    translator.body.append(f'<p class="lab-files">{" · ".join(links)}</p>\n')
    raise nodes.SkipNode


def skip(translator: Any, node: lab_files) -> None:
    """Plain text has no files beside it."""
    raise nodes.SkipNode


def _shown(env: BuildEnvironment) -> dict[str, set[str]]:
    """For each page the steps whose exercises it shows."""
    kept: dict[str, set[str]] = vars(env).setdefault("lab_exercises", {})
    return kept


def _purge(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    _shown(env).pop(docname, None)


def _merge(app: Sphinx, env: BuildEnvironment, docnames: Iterable[str], other: BuildEnvironment) -> None:
    for docname in docnames:
        if docname in _shown(other):
            _shown(env)[docname] = _shown(other)[docname]


def write_files(app: Sphinx, error: Exception | None) -> None:
    """Write the exercises that pages link to, and take away those that none links to any more."""
    if error is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir, FILES)
    wanted = dict(_files(_shown(app.env), _language(app.config.language)))
    if wanted:
        folder.mkdir(parents=True, exist_ok=True)
    for name, text in wanted.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    for old in folder.glob("*") if folder.is_dir() else ():
        if old.name not in wanted:
            old.unlink()


def _files(shown: Mapping[str, set[str]], lang: Language) -> Iterator[tuple[str, str]]:
    from attnbook.lab.exercise import exercise_notebook, exercise_source
    from attnbook.lab.steps import step

    for key in sorted(set().union(*shown.values())):
        yield f"{step(key).stem}.py", exercise_source(key, lang)
        yield f"{step(key).stem}.ipynb", exercise_notebook(key, lang)


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directives; the book's configuration names this module, for the reason that `execution_page` gives."""
    app.add_node(lab_place)
    app.add_node(lab_files, html=(visit_files, None), text=(skip, None))
    for shows in ("exercise", "hints", "solution"):
        app.add_directive(f"lab-{shows}", LabDirective)
    app.connect("doctree-resolved", fill)
    app.connect("env-purge-doc", _purge)
    app.connect("env-merge-info", _merge)
    app.connect("build-finished", write_files, priority=50)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
