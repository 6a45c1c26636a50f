"""The book itself: green as it stands, red when a number, an id or a line of code is changed, green again after."""

from __future__ import annotations

import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from attnbook.bookkit.store import load
from attnbook.claims.entries import Ledger
from attnbook.claims.judge import judge
from attnbook.measure import Measurement

ROOT = Path(__file__).parents[1]
SHOWN = [
    textwrap.dedent(match[0])
    for page in ("README.md", "book/appendix/writing.md")
    for match in re.finditer(
        r"^ *book/03-scaling\.md:\d+: .*\n.*$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE
    )
]
CHAPTERS = (
    "01-one-line", "02-three-names", "03-scaling", "04-softmax", "05-mask", "06-heads", "07-positions", "08-norms",
    "09-costs", "10-summary", "11-practice",
)  # fmt: skip


FIRST = CHAPTERS[:5]
"""The chapters that a tree without a build executes here: the others train models for minutes."""


def outline(text: str) -> str:
    """What other pages may ask a chapter for: its headings with their labels, and its list of further pages."""
    parts = r"\A---\n(?:.*\n)*?---$|^\([\w-]+\)=\n#+ .*$|^```\{toctree\}\n(?:.*\n)*?```$"
    blocks = re.finditer(parts, text, re.MULTILINE)
    return "\n\n".join(block[0] for block in blocks) + "\n"


def quoted(texts: Iterable[str]) -> set[str]:
    """The ids that claims of these pages name."""
    return {name for text in texts for name in re.findall(r"\{(?:claim|holds)\}`[^`]*<([\w.]+)>`", text)}


class Copy:
    """The book and the package in a folder of their own, with what the real tree has executed already.

    Where nothing was executed yet, the chapters after the first five, the lab, and pages that quote them, keep their
    headings only.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.chapters = CHAPTERS
        for name in ("attnbook", "book"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("_build", "__pycache__"))
        if (executed := ROOT / "book" / "_build" / "execution").is_dir():
            shutil.copytree(executed, root / "book" / "_build" / "execution")
            return
        self.chapters = FIRST
        pages = {page: page.read_text(encoding="utf-8") for page in sorted((root / "book").rglob("*.md"))}
        # The lab's pages run as long as chapters do: the capstone opens a model.
        chapters = {page for page in pages if re.match(r"\d\d", page.stem) or page.parent.name == "lab"}
        # Of the other pages those stay that run code, and those that quote nothing but what is measured then.
        kept = {page for page, text in pages.items() if page not in chapters and "\n```{code-cell}" in text}
        kept |= {page for page in chapters if page.stem in FIRST}
        later = quoted(pages[page] for page in chapters - kept) - quoted(pages[page] for page in kept)
        for page, text in pages.items():
            if page not in kept and (page in chapters or quoted([text]) & later):
                page.write_text(outline(text), encoding="utf-8")

    def build(self, *options: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PYTHONPATH": str(self.root), "OMP_WAIT_POLICY": "PASSIVE"}
        environment.pop("OMP_NUM_THREADS", None)
        return subprocess.run(
            [sys.executable, "-m", "attnbook.bookkit", "build", "book", "--strict", *options],
            cwd=self.root, env=environment, capture_output=True, text=True, encoding="utf-8", timeout=900, check=False,
        )  # fmt: skip

    def ledger(self) -> Ledger:
        text = (self.root / "book" / "_build" / "ledger.json").read_text(encoding="utf-8")
        return Ledger.from_json(json.loads(text))

    @property
    def pages(self) -> Path:
        return self.root / "book" / "_build" / "html" / "ja"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    copy = Copy(tmp_path_factory.mktemp("book"))
    done = copy.build()
    assert done.returncode == 0, done.stdout + done.stderr
    return copy


def test_every_verdict_is_fine_and_every_number_owned(copy: Copy):
    """A build of the book as it stands leaves a ledger without a failure."""
    ledger = copy.ledger()
    assert ledger.failures == ()
    assert ledger.unowned == 0
    assert all(entry.fine for entry in ledger.entries)
    assert {Path(entry.document).stem for entry in ledger.entries} >= set(copy.chapters)


def test_each_number_is_judged_by_its_digits(copy: Copy):
    """No claim of the book survives a measurement a little outside what it accepts: the text is what is checked."""
    checked = 0
    for entry in copy.ledger().entries:
        if entry.role != "claim":
            continue
        for end, outside in ((entry.accepts.low, -1), (entry.accepts.high, 1)):
            if end is None or abs(end) == float("inf"):
                continue
            moved = end + outside * max(abs(end) * 1e-6, 1e-300)
            measurement = Measurement(entry.id, moved, unit=entry.unit, spread=entry.spread)
            verdict = judge(entry.text, measurement, entry.role, entry.language)
            assert verdict.status == "drift", f"{entry.place}: {entry.text} accepts {moved}"
            checked += 1
    assert checked > 200


def unclaimed(ledger: Ledger, modules: set[str]) -> set[str]:
    """The experiments of which the book says nothing that was found, only how it was asked."""
    said = {entry.experiment.rpartition(".")[2] for entry in ledger.entries if entry.kind != "parameter"}
    return modules - said


def named_in(pages: Iterable[Path]) -> set[str]:
    """The experiments that pages import."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    imports = re.findall(r"^from attnbook\.experiments import (.+)$", text, re.MULTILINE)
    return {name.strip() for names in imports for name in names.split(",")}


def test_what_an_experiment_found_is_said_somewhere(copy: Copy):
    """Every experiment is run by a page, and at least one of its results, not only its settings, stands in the text."""
    folder = ROOT / "attnbook" / "experiments"
    experiments = {
        path.stem
        for path in folder.glob("[a-z]*.py")
        if re.search(r"^def run\(", path.read_text("utf-8"), re.MULTILINE)
    }
    assert len(experiments) > 50
    assert experiments - named_in((ROOT / "book").rglob("[0-9a-z]*.md")) == set()
    here = experiments & named_in((copy.root / "book").rglob("[0-9a-z]*.md"))
    assert unclaimed(copy.ledger(), here) == set()


def test_a_setting_is_no_result(copy: Copy):
    """An experiment of which only a setting is quoted is found."""
    ledger = copy.ledger()
    (name,) = {entry.experiment for entry in ledger.entries if entry.id == "scaling.score_ratio"}
    module = name.rpartition(".")[2]
    asked = tuple(replace(e, kind="parameter") if e.experiment == name else e for e in ledger.entries)
    assert unclaimed(replace(ledger, entries=asked), {module}) == {module}


def test_nothing_changed_executes_nothing(copy: Copy):
    """A second build finds every result and is green."""
    done = copy.build()
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search(r"cell \d+/\d+", done.stdout)


def test_a_changed_kernel_runs_the_page_of_the_gpu_again(copy: Copy):
    """Every source that holds a kernel is among the files whose change executes that page."""
    entries = (copy.root / "book" / "_build" / "execution" / "appendix" / "gpu").glob("*.json")
    result = load(max(entries, key=lambda path: path.stat().st_mtime_ns))
    assert result is not None
    sources = sorted((copy.root / "attnbook" / "kernels").rglob("*.py"))
    kernels = {str(path.relative_to(copy.root)) for path in sources if "@triton.jit" in path.read_text("utf-8")}
    assert kernels
    assert kernels <= set(result.depends)


def test_a_changed_number_is_red_until_it_is_mended(copy: Copy):
    """One number changed: red with place, value and what would be accepted; red again; green after, never executed."""
    chapter = copy.root / "book" / "03-scaling.md"
    assert len(SHOWN) == 2
    before = chapter.read_text(encoding="utf-8")
    claim = "{claim}`約900万倍 <scaling.score_ratio>`"
    line = before[: before.index(claim)].count("\n") + 1
    try:
        chapter.write_text(before.replace(claim, claim.replace("900", "700")), encoding="utf-8")
        for _ in range(2):
            done = copy.build()
            assert done.returncode == 1
            for shown in SHOWN:  # README and the page on writing show this very message; only the line moves
                assert re.sub(r"\.md:\d+:", f".md:{line}:", shown) in done.stderr
            assert not re.search(r"cell \d+/\d+", done.stdout)
    finally:
        chapter.write_text(before, encoding="utf-8")
    done = copy.build()
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search(r"cell \d+/\d+", done.stdout)


def test_an_unknown_id_is_red(copy: Copy):
    """A claim bound to an id that nothing measures names the place and the nearest id."""
    page = copy.root / "book" / "index.md"
    before = page.read_text(encoding="utf-8")
    try:
        page.write_text(before.replace("<scaling.score_ratio>", "<scaling.score_ration>"), encoding="utf-8")
        done = copy.build()
        assert done.returncode == 1
        assert re.search(r"book/index\.md:\d+: claim scaling\.score_ration .*scaling\.score_ratio", done.stderr)
    finally:
        page.write_text(before, encoding="utf-8")


def test_a_missing_division_executes_again_and_is_red(copy: Copy):
    """√d taken out where one chapter asks for it, nothing else touched: it alone runs again, and its sentences fail.

    What happens when the reference itself loses it is the mutations' to show: every chapter would run.
    """
    source = copy.root / "attnbook" / "experiments" / "score_variance.py"
    before = source.read_text(encoding="utf-8")
    broken = before.replace("scores(q, k, scale=None)", "scores(q, k, scale=1.0)")
    assert broken != before
    try:
        source.write_text(broken, encoding="utf-8")
        done = copy.build()
        assert done.returncode == 1
        assert re.findall(r"^(\S+) +done", done.stdout, re.MULTILINE) == ["03-scaling"]
        assert re.search(r"book/03-scaling\.md:\d+: claim scaling\.divided_variance_64 says", done.stderr)
    finally:
        source.write_text(before, encoding="utf-8")
    done = copy.build()  # the results of before are still there
    assert done.returncode == 0, done.stdout + done.stderr
    assert not re.search(r"cell \d+/\d+", done.stdout)


class Addresses(html.parser.HTMLParser):
    """Collects what a page makes a browser load, and the ids it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.ids: list[str] = []
        self.images_without_alt = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video", "audio", "embed"):
            self.loaded.append(given.get("src") or "")
        if tag == "link" and (given.get("rel") or "") not in ("canonical", "alternate"):
            self.loaded.append(given.get("href") or "")
        if given.get("id"):
            self.ids.append(str(given["id"]))
        if tag == "img" and given.get("alt") is None:
            self.images_without_alt += 1


def test_a_page_asks_nobody_else_for_anything(copy: Copy):
    """No script, style, font or picture of a built page comes from another host; ids are unique; images have alt."""
    pages = sorted(copy.pages.rglob("*.html"))
    assert len(pages) > 8
    for page in pages:
        found = Addresses()
        found.feed(page.read_text(encoding="utf-8"))
        assert not [address for address in found.loaded if re.match(r"(https?:)?//", address)], page.name
        assert not found.images_without_alt, page.name
        twice = {name for name in found.ids if found.ids.count(name) > 1}
        assert not twice, f"{page.name}: {twice}"
    for style in copy.pages.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", style.read_text(encoding="utf-8")), style.name


def test_chapters_stand_in_the_order_of_the_contents(copy: Copy):
    """The front page lists the chapters in order."""
    text = (copy.root / "book" / "index.md").read_text(encoding="utf-8")
    assert tuple(re.findall(r"^(\d\d-[\w-]+)$", text, re.MULTILINE)) == CHAPTERS
