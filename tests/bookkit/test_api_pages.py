"""Pages of public names: what is shown, what is refused, and that the book's own pages leave no name out."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest
from docutils import nodes
from sphinx import addnodes

from attnbook.bookkit.api_objects import describe, public_names
from attnbook.bookkit.api_sources import definitions
from attnbook.claims.prose import blocks
from tests.bookkit.site_builder import build

BOOK = Path(__file__).parents[2] / "book"
EXTENSIONS = ["myst_nb", "tests.bookkit.site_builder", "attnbook.bookkit.api_pages", "attnbook.bookkit.api_sources"]
HEAD = "(top)=\n# 題\n\n"
TOY = {
    "__init__.py": """
        from toy.inner import Cake, bake

        __all__ = ["Cake", "bake"]
    """,
    "inner.py": '''
        """Baking."""

        import functools

        from toy.base import Dish

        __all__ = ["Cake", "Oven", "bake", "CakeError"]


        def bake(dough, *, heat: float = 180.0, rest: "int | None" = None, **more: object) -> "Cake":
            """Bake dough (b, t, d), 900 grams of it, into a `Cake`.

            - `dough`: see `Oven`, where `heat` is 3 times as much.

                  dough ─► cake

            Raises CakeError below 7 degrees.
            """


        class Cake(Dish):
            """A cake of `layers` layers."""

            def __init__(self, layers: int = 3):
                self.layers = layers

            cut = staticmethod(bake)

            def slice(self, pieces: int) -> list:
                """Cut into pieces."""

            @property
            def weight(self) -> float:
                """Grams."""

            @functools.cached_property
            def crumbs(self) -> int:
                """Counted once."""

            @classmethod
            def of(cls, name: str) -> "Cake":
                """A named one."""

            @staticmethod
            def cold() -> bool:
                """Never."""

            def extra_repr(self):
                return ""

            def _secret(self):
                pass


        class Oven:
            """Heat; `bake` uses it, and `Cake.slice` does not."""


        class CakeError(ValueError):
            """A flat cake."""
    ''',
    "base.py": '''
        class Dish:
            """Anything on a plate."""

            def serve(self):
                """Bring it."""

            def slice(self, pieces):
                """Hidden by the cake's."""
    ''',
}


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A package with functions, classes and an error."""
    folder = tmp_path / "package" / "toy"
    folder.mkdir(parents=True)
    for name, text in TOY.items():
        (folder / name).write_text(textwrap.dedent(text).lstrip(), encoding="utf-8")
    monkeypatch.syspath_prepend(str(folder.parent))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy"]:
        del sys.modules[name]


def site(tmp_path, text, **config):
    return build(tmp_path / "book", {"index": HEAD + text}, extensions=EXTENSIONS, **config)


def api(module, *lines):
    return f"```{{api}} {module}\n" + "".join(f"{line}\n" for line in lines) + "```\n"


def warned(built):
    """Sphinx's warnings, but for the small site's theme, which lacks an option."""
    return [line for line in built.warnings.splitlines() if "theme option" not in line]


def paths(built):
    return list(built.app.env.get_domain("py").objects)


def test_a_name_is_shown_with_its_signature_and_its_docstring_as_markdown(toy, tmp_path):
    """Types and defaults, code, a list and a drawing; in English whatever the page's language."""
    built = site(tmp_path, api("toy.inner", "bake"))
    assert built.problems() == []
    assert warned(built) == []
    (signature,) = built.doctree().findall(addnodes.desc_signature)
    parameters = "dough, *, heat: float = 180.0, rest: int | None = None, **more: object"
    assert signature.astext() == f"toy.bake({parameters}) -> Cake"
    html = built.html()
    described = html[html.index('<div lang="en">') :]
    assert "into a <a" in described or "into a <code" in described
    assert re.search(r"<li>\s*<p><code[^>]*><span class=\"pre\">dough</span>", described)
    assert re.search(r"(?s)<pre>.{0,40}dough ─► cake", described)
    assert "numbers of" not in described


def test_a_name_goes_by_its_shortest_public_path(toy, tmp_path):
    """`toy.inner.bake` is public as `toy.bake`; what the package does not give stays where it is."""
    assert describe("toy.inner", "bake").path == "toy.bake"
    assert describe("toy.inner", "Oven").path == "toy.inner.Oven"
    assert paths(site(tmp_path, api("toy.inner", "bake", "Oven"))) == ["toy.bake", "toy.inner.Oven"]


def test_members_are_those_that_our_classes_define(toy):
    """Methods and properties, inherited ones last; no hooks, no private names, no borrowed functions."""
    members = describe("toy", "Cake").members
    assert [(member.kind, member.signature, member.options) for member in members] == [
        ("method", "slice(pieces: int) -> list", {}),
        ("property", "weight", {"type": "float"}),
        ("property", "crumbs", {"type": "int"}),
        ("method", "of(name: str) -> Cake", {"classmethod": ""}),
        ("method", "cold() -> bool", {"staticmethod": ""}),
        ("method", "serve()", {}),
    ]
    assert members[0].docstring == "Cut into pieces."
    assert [Path(file).name for file in describe("toy", "Cake").files] == ["inner.py", "base.py"]


def test_classes_and_errors_are_told_apart(toy, tmp_path):
    """A class shows how it is made, an error does not; members stand inside."""
    assert describe("toy.inner", "CakeError").kind == "exception"
    assert describe("toy.inner", "CakeError").signature == "CakeError"
    built = site(tmp_path, api("toy.inner", "Cake", "CakeError"))
    shown = [signature.astext() for signature in built.doctree().findall(addnodes.desc_signature)]
    assert shown[0] == "class toy.Cake(layers: int = 3)"
    assert "property weight: float" in shown
    assert "classmethod of(name: str) -> Cake" in shown
    assert shown[-1] == "exception toy.inner.CakeError"


def test_all_names_or_those_of_some_modules(toy, tmp_path):
    """Without names all of `__all__`, as their files have them; `:defined-in:` takes those of the modules it names."""
    assert public_names("toy.inner") == ["bake", "Cake", "Oven", "CakeError"]
    assert public_names("toy", ["inner"]) == ["bake", "Cake"]
    assert public_names("toy", ["base"]) == []
    built = site(tmp_path, api("toy", ":defined-in: inner"))
    assert [path for path in paths(built) if path.count(".") == 1] == ["toy.bake", "toy.Cake"]


@pytest.mark.parametrize(
    ("module", "lines", "message"),
    [
        ("toy.inner", ["bread"], "toy.inner has no name bread; it has Cake, Oven, bake, CakeError"),
        ("toy.inner", ["functools"], "toy.inner.functools is no function and no class"),
        ("toy.outer", [], "toy.outer cannot be imported: No module named 'toy.outer'"),
        ("toy", [":defined-in: base"], "toy.__all__ has no name defined in base"),
        ("toy.base", [], "toy.base.__all__ has no name"),
        ("toy", [":defined-in: inner", "", "bake"], "give either names or :defined-in:, not both"),
    ],
)
def test_what_cannot_be_shown_is_a_located_failure(toy, tmp_path, module, lines, message):
    """At the directive's line, with what there is."""
    problems = site(tmp_path, "文。\n\n" + api(module, *lines)).problems()
    assert problems[0] == (6, "api", message)


def test_a_missing_docstring_is_a_located_failure(toy, tmp_path):
    """Of a function and of a method, with the file and line where it is missing."""
    (toy / "inner.py").write_text(
        "__all__ = ['Cake', 'bake']\n\n\ndef bake():\n    pass\n\n\nclass Cake:\n    '''A cake.'''\n\n"
        "    def slice(self):\n        pass\n"
    )
    said = [message for _, _, message in site(tmp_path, api("toy.inner")).problems()]
    assert said == [
        f"toy.bake has no docstring ({toy / 'inner.py'}:4)",
        f"toy.Cake.slice has no docstring ({toy / 'inner.py'}:11)",
    ]


def test_names_that_a_docstring_mentions_are_links(toy, tmp_path):
    """By the module's names or the only name that ends so; never a parameter, never the name itself."""
    html = site(tmp_path, api("toy.inner", "bake", "Cake", "Oven")).html()
    described = "".join(re.findall(r'(?s)<div lang="en">.*?</div>', html))
    links = re.findall(r'<a class="reference internal" href="#([\w.]+)"[^>]*><code', described)
    # bake mentions Cake and Oven (dough and heat are its parameters); Oven mentions bake and Cake.slice
    assert links == ["toy.Cake", "toy.inner.Oven", "toy.bake", "toy.Cake.slice"]


def test_a_parameter_is_no_link_though_something_has_its_name(toy, tmp_path):
    """`rest` of `bake` is what is handed in, not the function of that name."""
    (toy / "inner.py").write_text(
        "__all__ = ['bake', 'rest']\n\n\ndef bake(rest):\n    'See `rest`.'\n\n\ndef rest():\n    'After `bake`.'\n"
    )
    (toy / "__init__.py").write_text("__all__ = []\n")
    described = "".join(re.findall(r'(?s)<div lang="en">.*?</div>', site(tmp_path, api("toy.inner")).html()))
    assert re.findall(r'href="#([\w.]+)"', described) == ["toy.inner.bake"]


def test_docstrings_are_no_messages_for_translation(toy, tmp_path):
    """The catalogue of a page holds what its author wrote, and no docstring, signature or index entry."""
    built = site(tmp_path, "前の文。\n\n" + api("toy.inner"), builder="gettext", gettext_additional_targets=["index"])
    catalogue = (Path(built.app.outdir) / "index.pot").read_text("utf-8")
    assert re.findall(r'msgid "(.+)"', catalogue) == ["題", "前の文。"]


def test_numbers_in_docstrings_are_not_the_pages_prose(toy, tmp_path):
    """The gate reads what the page's author wrote; 900 grams of a docstring are the code's."""
    read = [block.text for block in blocks(site(tmp_path, "前の文 12。\n\n" + api("toy.inner")).doctree())]
    assert read == ["前の文 12。"]


def test_a_hand_written_description_is_prose(tmp_path):
    """Only docstrings are exempt: a number that an author writes into a description is checked."""
    text = "```{py:function} bake(dough)\n:no-index-entry:\n\n900グラム。\n```\n"
    assert [block.text for block in blocks(site(tmp_path, text).doctree())] == ["900グラム。"]


def test_a_page_is_read_again_when_what_it_shows_has_changed(toy, tmp_path):
    """It depends on the file of each object, and on those of the classes it inherits from."""
    built = site(tmp_path, api("toy", "Cake"))
    known = {Path(built.app.srcdir, path).resolve() for path in built.app.env.dependencies["index"]}
    assert {(toy / name).resolve() for name in ("inner.py", "base.py")} <= known


def test_long_signatures_are_written_over_several_lines(toy, tmp_path):
    """One parameter a line, so that a phone shows them; short ones stay on one."""
    doctree = site(tmp_path, api("toy", "bake", "Cake")).doctree()
    lists = list(doctree.findall(addnodes.desc_parameterlist))
    assert lists[0]["multi_line_parameter_list"]
    assert not lists[1].get("multi_line_parameter_list")


def test_the_source_is_a_page(toy, tmp_path):
    """Each description links to its source text, which is built beside the pages."""
    built = site(tmp_path, api("toy", "bake"))
    assert '<a class="source-link" href="_modules/toy/inner.html#bake">[ソース]</a>' in built.html()
    source = (Path(built.app.outdir) / "_modules/toy/inner.html").read_text("utf-8")
    assert "dough ─► cake" in source
    assert source.count('id="bake"') == source.count('id="Cake.slice"') == source.count('id="Cake.weight"') == 1


def test_a_page_of_source_is_made_again_only_when_its_file_is_newer(toy, tmp_path):
    """A second build imports and highlights nothing, unless the file has changed."""
    text = api("toy", "bake")
    page = Path(site(tmp_path, text).app.outdir) / "_modules/toy/inner.html"
    first = page.stat().st_mtime_ns
    site(tmp_path, text + "文。\n")
    assert page.stat().st_mtime_ns == first
    os.utime(toy / "inner.py", ns=(first + 10**9, first + 10**9))
    site(tmp_path, text + "別の文。\n")
    assert page.stat().st_mtime_ns != first


def test_definitions_are_found_with_their_decorators():
    """A method goes by its class; the first line is the decorator's."""
    text = "import x\n\n@x.y\n@x.z\ndef f():\n    def inner(): ...\n\nclass C:\n    @property\n    def g(self): ...\n"
    assert definitions(text) == [("f", 3), ("C", 8), ("C.g", 9)]


# The book's own pages ---------------------------------------------------------------------------------------------

ROOMS = (
    "attnbook",
    "attnbook.api",
    "attnbook.reference",
    "attnbook.tiled",
    "attnbook.kernels.flash",
    "attnbook.kernels.decode",
    "attnbook.kernels.moe",
    "attnbook.costs",
    "attnbook.probes",
    "attnbook.integrations.transformers",
)


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """The API pages of the book, built."""
    pages = {f"api/{path.stem}": path.read_text("utf-8") for path in (BOOK / "api").glob("*.md")}
    pages |= {"index": HEAD + "```{toctree}\napi/index\n```\n", "notation": "(notation)=\n# 記法\n"}
    # What they refer to elsewhere in the book.
    for label in ("gpu", "lab"):
        pages[label] = f"---\norphan: true\n---\n\n({label})=\n# {label}\n"
    return build(tmp_path_factory.mktemp("api"), pages, extensions=EXTENSIONS)


def public():
    """Every function and class that a room gives to its users, once, with the path it was found by."""
    found = {}
    for room in ROOMS:
        module = importlib.import_module(room)
        for name in module.__all__:
            item = getattr(module, name)
            if not isinstance(item, ModuleType) and (inspect.isclass(item) or inspect.isroutine(item)):
                found.setdefault(item, f"{room}.{name}")
    return {path: item for item, path in found.items()}


def resolve(path):
    """The object that a documented path names; None for members."""
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError:
        return None


def test_the_books_pages_are_whole(book):
    """No name and no docstring is missing, no markup stayed text, nothing is warned of."""
    pages = [docname for docname in book.app.env.found_docs if docname.startswith("api/")]
    assert len(pages) > 5
    assert {docname: book.problems(docname) for docname in pages} == {docname: [] for docname in pages}
    assert [line for line in warned(book) if "notation" not in line] == []


def test_every_public_name_is_on_a_page(book):
    """What a room's `__all__` gives can be looked up in the book."""
    shown = [resolve(path) for path in book.app.env.get_domain("py").objects]
    left_out = [path for path, item in public().items() if not any(item is other for other in shown)]
    assert left_out == []


def test_docstrings_of_functions_on_arrays_say_shapes_and_errors():
    """Whoever takes arrays says of what shape, and what is raised, or that nothing is checked."""
    silent = {}
    for path, item in public().items():
        if not inspect.isroutine(item):
            continue
        takes = [p.name for p in inspect.signature(item).parameters.values() if _is_array(p)]
        said = item.__doc__ or ""
        lacks = [
            what
            for what, pattern in {
                "shapes": r"\([^()\n]*[a-z_…]+[^()\n]*[,)]|shape",
                "errors": r"[Rr]aise[sd]|[Ee]rrors|not checked|[Nn]othing is checked",
            }.items()
            if not re.search(pattern, said)
        ]
        if takes and lacks:
            silent[path] = lacks
    assert silent == {}


def _is_array(parameter):
    return re.search(r"\b(Array|Tensor)\b", str(parameter.annotation)) is not None


def test_every_description_has_its_own_words(book):
    """Descriptions are not empty, and are marked as English."""
    for docname in book.app.env.found_docs:
        for content in book.doctree(docname).findall(addnodes.desc_content):
            assert content.children[0].tagname == "english"
            assert any(isinstance(child, nodes.paragraph) for child in content.children[0].children)
