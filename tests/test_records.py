"""Records: what makes one stale, what is refused, what a chapter that quotes one depends on."""

import json

import pytest

from attnbook.records import Record, RecordError, depends_on, recorded, source_digest

KERNEL = '"""Doc."""\n\n\ndef tile(n: int = 64) -> int:\n    """More."""\n    return n * 2  # twice\n'

VARIED = """
import a.b as c
from . import d

@c.wrap(1, *d, **{'k': None, **c})
class A(d, metaclass=c):
    x: int = -1
    async def f(self, p, /, q=None, *r, s: "t" = ..., **u) -> None:
        async with c as (e, *f): yield f"{e!r:>{q}} {f:.2f}" "g"
        return
    def g(self):
        try: return [i async for i in c if i > 0 < 1.5e3]
        except (KeyError, d.E) as e: raise e from None
        else: global h; h = lambda k=1j: k
        finally: del self[1:2, ::3], self.x
        match self:
            case [1, *_] | {"k": A(x=2)} if b"z" not in c: pass
            case _: assert True, 'no'
"""


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A project with a kernel, and a book with a record of it; chapters run in the book's folder."""
    (tmp_path / "book" / "records").mkdir(parents=True)
    (tmp_path / "kernel.py").write_text(KERNEL)
    (tmp_path / "book" / "records" / "flash.json").write_text(json.dumps(valid(tmp_path)))
    monkeypatch.setenv("ATTNBOOK_BOOK", str(tmp_path / "book"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("attnbook.records.ROOT", tmp_path)
    return tmp_path / "book"


def valid(root):
    return {
        "device": "H200",
        "versions": {"torch": "2.11.0"},
        "date": "2025-06-30",
        "command": "attnbook bench flash",
        "sources": {"kernel.py": source_digest([root / "kernel.py"])},
        "values": {"forward.speedup": {"value": 3.7, "unit": "ratio", "spread": 0.1}, "fits": {"value": True}},
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# twice", "# doubled"),
        ('"""Doc."""', '"""Another."""\n\n\n'),
        ('    """More."""\n', ""),
        ('    """More."""\n', '    """Less."""\n    """Even less."""\n'),
        ("n * 2  #", "(n\n        * 2)  #"),
    ],
)
def test_comments_docstrings_and_layout_do_not_change_a_digest(tmp_path, old, new):
    """They say nothing to the interpreter."""
    (tmp_path / "a.py").write_text(KERNEL)
    (tmp_path / "b.py").write_text(KERNEL.replace(old, new))
    assert old in KERNEL
    assert source_digest([tmp_path / "a.py"]) == source_digest([tmp_path / "b.py"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("n * 2", "n + 2"),
        ("n * 2", "2 * n"),
        ("n * 2", "n * 2.0"),
        ("= 64", "= 65"),
        ("= 64", "= True"),
        ("= 64", "= None"),
        ("n: int = 64", "n: int"),
        ("n: int = 64", "*, n: int = 64"),
        ("n: int", "m: int"),
        ("-> int", "-> str"),
        ("return n", "if n: return n"),
        ("return n", "n; return n"),
        ("tile", "tiles"),
        ("def ", "async def "),
    ],
)
def test_anything_else_does(tmp_path, old, new):
    """A sign, an order, a type, a default, a name."""
    (tmp_path / "a.py").write_text(KERNEL)
    (tmp_path / "b.py").write_text(KERNEL.replace(old, new, 1))
    assert old in KERNEL
    assert source_digest([tmp_path / "a.py"]) != source_digest([tmp_path / "b.py"])


def test_the_digest_is_the_same_under_every_python(tmp_path):
    """A record is made on one machine and judged on another: this digest is that of 3.11, 3.12 and 3.13."""
    (tmp_path / "a.py").write_text(VARIED)
    assert source_digest([tmp_path / "a.py"]) == "b555df610d11eb26d045e70a5206fa39c70ad7ddef87a1aafa89313e58eb980e"


def test_several_files_in_any_order_and_files_that_are_not_python(tmp_path):
    """The latter count with their bytes."""
    paths = [tmp_path / "a.py", tmp_path / "table.csv"]
    paths[0].write_text(KERNEL)
    paths[1].write_text("# a,b\n")
    both = source_digest(paths)
    assert both == source_digest(reversed(paths))
    paths[1].write_text("# a,c\n")
    assert source_digest(paths) != both


def test_a_recorded_value_carries_device_date_and_source(book):
    """And is of the kind recorded, fresh while its sources are the same."""
    made = recorded("flash.speedup", "records/flash.json", "forward.speedup")
    assert (made.value, made.unit, made.spread, made.kind) == (3.7, "ratio", 0.1, "recorded")
    assert (made.device, made.date, made.source, made.stale) == ("H200", "2025-06-30", "book/records/flash.json", ())
    assert recorded("flash.fits", book / "records" / "flash.json", "fits").value is True


def test_a_record_may_say_what_it_lacks(book):
    """By name, with the reason; a record that lacks nothing need not say so; one that gives no reason is refused."""
    path = book / "records" / "flash.json"
    assert Record.load(path).missing == {}
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | {"missing": {"backward": "no time was left"}}))
    assert Record.load(path).missing == {"backward": "no time was left"}
    path.write_text(json.dumps(data | {"missing": {"backward": None}}))
    with pytest.raises(RecordError, match=r"missing\.backward: expected a text, got None"):
        Record.load(path)


def test_a_record_is_stale_when_a_source_says_something_else_or_is_gone(book):
    """A comment does not make it so."""
    kernel = book.parent / "kernel.py"
    kernel.write_text(KERNEL.replace("# twice", "# doubled"))
    assert recorded("a.b", "records/flash.json", "fits").stale == ()
    kernel.write_text(KERNEL.replace("* 2", "* 3"))
    assert recorded("a.b", "records/flash.json", "fits").stale == ("kernel.py",)
    kernel.write_text("def (")
    assert recorded("a.b", "records/flash.json", "fits").stale == ("kernel.py",)
    kernel.unlink()
    assert recorded("a.b", "records/flash.json", "fits").stale == ("kernel.py",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": None}, r"device: expected a text, got None"),
        ({"device": " "}, r"device: expected a text, got ' '"),
        ({"versions": {}}, r"versions: expected an object that is not empty, got \{\}"),
        ({"versions": {"torch": 2}}, r"versions\.torch: expected a text, got 2"),
        ({"date": "30.6.2025"}, r"date: expected a date such as 2025-06-30, got '30\.6\.2025'"),
        ({"command": ["a"]}, r"command: expected a text"),
        ({"sources": {}}, r"sources: expected an object that is not empty"),
        ({"values": []}, r"values: expected an object that is not empty, got \[\]"),
        ({"values": {"a": 1}}, r"values\.a: expected an object with a value, got 1"),
        ({"values": {"a": {"value": "1"}}}, r"values\.a\.value: expected a finite number or a boolean, got '1'"),
        ({"values": {"a": {"value": float("nan")}}}, r"values\.a\.value: expected a finite number"),
        ({"values": {"a": {"value": 1, "unit": 3}}}, r"values\.a\.unit: expected a text, got 3"),
        ({"values": {"a": {"value": 1, "spread": -1}}}, r"values\.a\.spread: expected a number that is not negative"),
    ],
)
def test_an_incomplete_record_is_refused_by_file_and_place(book, change, message):
    """No record, no claim."""
    (book / "records" / "flash.json").write_text(json.dumps(valid(book.parent) | change))
    with pytest.raises(RecordError, match=r"^record book/records/flash\.json: " + message):
        recorded("a.b", "records/flash.json", "a")


def test_a_record_that_is_missing_or_no_json_and_a_key_that_is_missing_are_refused(book):
    """Each by name."""
    with pytest.raises(RecordError, match=r"record records/other\.json not found"):
        recorded("a.b", "records/other.json", "fits")
    with pytest.raises(RecordError, match=r"has no value 'speed'; it holds: forward\.speedup, fits"):
        recorded("a.b", "records/flash.json", "speed")
    (book / "records" / "flash.json").write_text("{")
    with pytest.raises(RecordError, match=r"record book/records/flash\.json is not JSON"):
        recorded("a.b", "records/flash.json", "fits")
    (book / "records" / "flash.json").write_text("[]")
    with pytest.raises(RecordError, match=r"expected an object, got list"):
        Record.load(book / "records" / "flash.json")


def test_a_chapter_depends_on_the_record_and_the_sources_behind_it(book, tmp_path, monkeypatch):
    """A changed source makes the chapter run again, so that the record is found stale."""
    monkeypatch.setenv("ATTNBOOK_TRACE", str(tmp_path / "trace"))
    recorded("a.b", "records/flash.json", "fits")
    depends_on("nowhere")
    told = [json.loads(line) for line in (tmp_path / "trace").read_text().splitlines()]
    names = [book / "records" / "flash.json", tmp_path / "kernel.py", tmp_path / "nowhere"]
    assert [use["file"] for use in told] == [str(name.resolve()) for name in names]
    assert told[2]["digest"] == "absent"


def test_outside_a_chapter_declaring_does_nothing(book, monkeypatch):
    """Tests and the command line run experiments too: no file is made, none is read."""
    monkeypatch.delenv("ATTNBOOK_TRACE", raising=False)
    before = sorted(book.parent.rglob("*"))
    monkeypatch.setattr("attnbook.records.os.open", None)
    monkeypatch.setattr("attnbook.records.Path.open", None)
    depends_on(book / "records" / "flash.json")
    monkeypatch.undo()
    assert sorted(book.parent.rglob("*")) == before
