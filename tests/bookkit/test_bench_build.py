"""What the benchmark concludes from its times, and what it expects; the times themselves are no test."""

import pytest

from attnbook.bookkit import bench_build
from attnbook.bookkit.bench_build import Build, Copy, DoesNotBuild, Findings, report
from tests.bookkit.small_book import chapter, write


def test_all_that_is_asked_is_met():
    """Medians, not means: one slow repeat changes nothing."""
    found = Findings([60, 61, 600], [40, 41, 400], [2, 2, 9], [3, 3, 9], [11, 12, 13], [50, 59, 90])
    lines, met = report(found)
    assert met
    assert lines[0] == "ok      cold: stock 61.0 s, ours 41.0 s, 1.49 times as fast (asked: at least 1.3)"
    assert lines[1] == "ok      chapters together execute in 59.0 s (asked: under 60 s)"
    assert all(line.startswith("ok") for line in lines)


def test_each_thing_missed_is_named_and_fails():
    """Too slow, or something executed that should not have been."""
    good = {"stock": [13.0], "cold": [10.0], "execution": [59.9]}
    good |= {"unchanged": [2.9], "prose": [3.9], "experiment": [1.0]}
    assert report(Findings(**good))[1]
    missed = {"cold": [10.1]}, {"execution": [60.0]}, {"unchanged": [3.0]}, {"prose": [4.0]}
    for bad in (*missed, {"wrong": ["prose edited: got 03"]}):
        lines, met = report(Findings(**good | bad))
        assert not met
        assert sum(line.startswith("MISSED") for line in lines) == 1
    assert lines[-1] == "prose edited: got 03"


def test_a_build_says_what_it_executed_and_how_long_that_took(tmp_path, monkeypatch):
    """Read from what it prints; one that executes nothing says no time."""
    said = "01-one  cell 1/1\n01-one  done 3.0 s\n02-二  done 11.0 s\n2 chapters executed in 11.5 s\nexecution 12.0 s\n"
    monkeypatch.setattr(Copy, "timed", lambda *arguments: (19.0, said))
    assert Copy(tmp_path).ours() == Build(19.0, 11.5, frozenset({"01-one", "02-二"}))
    monkeypatch.setattr(Copy, "timed", lambda *arguments: (2.0, "2 chapters unchanged\nexecution 0.1 s\n"))
    assert Copy(tmp_path).ours() == Build(2.0, 0.0, frozenset())


IMPORT = "from attnbook.experiments import "
EXPERIMENTS = {
    f"attnbook/experiments/{name}.py": text
    for name, text in {
        "shared": "", "inner": "", "alone": "", "outer": f"{IMPORT}inner as inside\n", "deep": "", "unused": "",
    }.items()
}  # fmt: skip


def test_who_imports_an_experiment_is_read_from_the_chapters(tmp_path):
    """From their cells, not from what the build recorded; one that another experiment imports is left alone."""
    pages = {
        "book/01-one.md": chapter(f"{IMPORT}shared, outer", f"{IMPORT}inner"),
        "book/02-two.md": chapter(f"{IMPORT}shared  # and alone", "import attnbook.experiments.alone"),
        "book/03-three.md": chapter(f"{IMPORT}outer", prose=f"Prose may say:\n\n```python\n{IMPORT}unused\n```\n"),
    }
    write(tmp_path, pages | EXPERIMENTS)
    assert bench_build._edit_experiment(Copy(tmp_path)) == ("attnbook/experiments/alone.py", {"02-two"})
    edited = [name for name, text in EXPERIMENTS.items() if (tmp_path / name).read_text() != text]
    assert edited == ["attnbook/experiments/alone.py"]
    (tmp_path / "book/02-two.md").unlink()
    (tmp_path / "book/01-one.md").write_text(chapter(f"{IMPORT}inner"))
    assert bench_build._edit_experiment(Copy(tmp_path)) == ("attnbook/experiments/outer.py", {"03-three"})
    (tmp_path / "book/03-three.md").unlink()
    with pytest.raises(DoesNotBuild, match="no chapter imports an experiment"):
        bench_build._edit_experiment(Copy(tmp_path))


def test_prose_is_edited_in_the_first_paragraph_of_the_first_chapter(tmp_path):
    """Japanese, whatever the machine's encoding is."""
    write(tmp_path, {"book/00-plain.md": "本文です。\n", "book/01-one.md": chapter("1", prose="本文です。")})
    assert bench_build._edit_prose(Copy(tmp_path)) == "01-one"
    text = (tmp_path / "book/01-one.md").read_text("utf-8")
    assert text == chapter("1", prose="本文です。この文は、あとから加えました。")
