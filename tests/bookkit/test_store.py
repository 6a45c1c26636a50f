"""What a result is found by, and that only whole results are found."""

import ast
import dataclasses
import os
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import attnbook
from attnbook.bookkit import store as store_
from attnbook.bookkit.chapter import read
from attnbook.bookkit.store import KEPT, Result, Store, key
from attnbook.bookkit.trace import ABSENT, Files
from tests.bookkit.small_book import chapter, write


@pytest.fixture
def book(tmp_path):
    return write(tmp_path / "book", {"01-first.md": chapter("1", "2"), "data.txt": "seven"})


def first(book, text=None):
    if text is not None:
        write(book, {"01-first.md": text})
    return read(book / "01-first.md", book)


def result(book, *, seconds=1.5, text="1", depends=("book:data.txt",)):
    outputs = [{"output_type": "stream", "name": "stdout", "text": text}]
    files = Files(book)
    return Result(
        chapter="01-first",
        key=key(first(book)),
        depends={name: files.digest(name) for name in depends},
        seconds=seconds,
        experiments=[("attnbook.experiments.x", 0.5)],
        cells=[{"outputs": outputs, "count": 1}, {"outputs": [], "count": 2}],
        language_info={"name": "python"},
    )


def test_the_key_is_the_code_and_the_versions_not_the_prose(book, monkeypatch):
    """Prose, comments outside cells, headings and how a cell is shown are not in it; a character of code is."""
    plain = key(first(book))
    assert key(first(book, chapter("1", "2", title="Other", prose="Other.\n\n% a comment"))) == plain
    assert key(first(book, chapter(":tags: [hide-input]\n\n1", "2"))) == plain
    assert key(first(book, chapter(":tags: [raises-exception]\n\n1", "2"))) != plain
    assert key(first(book, chapter("1", "2 "))) != plain or key(first(book, chapter("1", "2 # why"))) != plain
    assert key(first(book, chapter("12"))) != plain
    first(book, chapter("1", "2"))
    monkeypatch.setattr(store_, "versions", lambda: {"torch": "0"})
    assert key(first(book)) != plain


def test_the_versions_are_of_all_that_numbers_come_from():
    """Every package that the reference, the experiments or the probes import: a new version may calculate otherwise."""
    imported = set()
    for room in ("reference", "experiments", "probes"):
        for path in sorted((Path(attnbook.__file__).parent / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.Import):
                    imported |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and not node.level:
                    imported.add(str(node.module).partition(".")[0])
    foreign = imported - set(sys.stdlib_module_names) - {"attnbook"}
    assert foreign >= {"torch", "numpy", "array_api_compat"}
    distributions = packages_distributions()
    assert {distributions[name][0] for name in foreign} <= set(store_.VERSIONS)
    assert set(store_.versions()) == {"python", *store_.VERSIONS}


def test_a_saved_result_is_found_equal(book):
    """All of it, and by another Store."""
    saved = result(book)
    Store(book).save(saved)
    assert Store(book).find(first(book), Files(book)) == saved
    assert Store(book).last_seconds("01-first") == 1.5


def test_a_result_counts_only_while_its_files_are_what_they_were_and_undoing_finds_it_again(book):
    """Both results are kept: each belongs to one state of the file."""
    seven = result(book, text="seven")
    Store(book).save(seven)
    write(book, {"data.txt": "eight"})
    assert Store(book).find(first(book), Files(book)) is None
    eight = result(book, text="eight")
    Store(book).save(eight)
    assert Store(book).find(first(book), Files(book)) == eight
    write(book, {"data.txt": "seven"})
    assert Store(book).find(first(book), Files(book)) == seven


def test_a_file_that_did_not_exist_counts_once_it_does(book):
    """A chapter that asked for it would do something else now."""
    Store(book).save(result(book, depends=("book:later.txt",)))
    assert Store(book).find(first(book), Files(book)).depends == {"book:later.txt": ABSENT}
    write(book, {"later.txt": ""})
    assert Store(book).find(first(book), Files(book)) is None


def test_results_move_with_the_book(book, tmp_path):
    """A checkout that is moved or copied executes nothing again."""
    Store(book).save(result(book))
    moved = tmp_path / "elsewhere" / "book"
    moved.parent.mkdir()
    book.rename(moved)
    assert Store(moved).find(first(moved), Files(moved)) is not None


@pytest.mark.parametrize("damage", [0, 3, 200, -1])
def test_a_damaged_entry_does_not_count(book, damage):
    """A byte changed in the digest, at the start, in the middle, at the end."""
    Store(book).save(result(book))
    (entry,) = Store(book).folder.rglob("*.json")
    content = bytearray(entry.read_bytes())
    content[damage] ^= 1
    entry.write_bytes(content)
    assert Store(book).find(first(book), Files(book)) is None


@pytest.mark.parametrize("length", [0, 1, 64, 65, 300])
def test_an_entry_cut_short_does_not_count(book, length):
    """Whatever is left of it; and saving again mends it."""
    Store(book).save(result(book))
    (entry,) = Store(book).folder.rglob("*.json")
    os.truncate(entry, length)
    assert Store(book).find(first(book), Files(book)) is None
    Store(book).save(result(book))
    assert Store(book).find(first(book), Files(book)) is not None


def test_a_write_that_fails_leaves_neither_an_entry_nor_litter(book, monkeypatch):
    """The disk is full while the entry is written."""

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        Store(book).save(result(book))
    assert not [path for path in Store(book).folder.rglob("*") if path.is_file()]


def test_what_a_killed_build_was_writing_is_no_entry_and_is_swept_up(book):
    """It lies beside the entries under another name."""
    Store(book).save(result(book))
    litter = Store(book).folder / "01-first" / ".new-x"
    litter.write_bytes(b"half")
    Store(book).save(result(book))
    assert not litter.exists()


def test_the_entries_used_last_are_kept_and_no_more(book):
    """Finding one is using it: it outlives younger ones."""
    for n in range(KEPT):
        write(book, {"data.txt": str(n)})
        Store(book).save(result(book, text=str(n)))
    for date, entry in enumerate(sorted(Store(book).folder.rglob("*.json"))):
        os.utime(entry, (date, date))
    write(book, {"data.txt": "0"})
    assert Store(book).find(first(book), Files(book)) is not None
    write(book, {"data.txt": "new"})
    Store(book).save(result(book, text="new"))
    write(book, {"data.txt": "0"})
    assert Store(book).find(first(book), Files(book)) is not None
    assert len(list(Store(book).folder.rglob("*.json"))) == KEPT


def test_the_digest_is_of_what_is_shown_not_of_the_time_it_took(book):
    """Or a page would be read again for nothing."""
    assert result(book, seconds=1).digest == result(book, seconds=2).digest
    assert result(book).digest != result(book, text="2").digest
    assert result(book).digest == dataclasses.replace(result(book), depends={}).digest
