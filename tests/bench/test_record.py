"""A run's record: what the book can quote, what makes it stale, what it lacks, and what it does not take away."""

import json
import sys

import pytest
import torch

from attnbook import records
from attnbook.bench import command, gpu_suite, suite
from attnbook.bench.case import CannotRun, Case, Disagree, Finding, Setting, Target, Verdict
from attnbook.bench.command import main
from attnbook.bench.record import CannotRecord, Recorder, default_path, sources, values
from attnbook.records import Record

KERNEL = '"""A kernel."""\n\n\ndef tile():\n    """Its size."""\n    return 64\n'
FOUND = Finding(
    380.0, {"attnbook": 1e-3, "cudnn": 7e-4, "mm": 2e-3}, ran="triton",
    rates={"attnbook": 380.0, "cudnn": 520.0, "mm": 700.0}, rate_unit="TFLOP/s",
    shares={"of mm": 0.54, "over cudnn": 0.73}, spread=1.5, absent={"flash, varlen": "RuntimeError: no"},
)  # fmt: skip


def case(name, found, target=None):
    """One that finds this, or raises it."""

    def run(setting):
        if isinstance(found, Exception):
            raise found
        return found

    return Case(name, "made up", target or Target(353.0, unit="TFLOP/s", card="H200"), run)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A checkout with a book and one kernel, which a run has loaded, and one that it has not."""
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "conf.py").write_text("")
    for name in [name for name in sys.modules if name.startswith("attnbook.kernels.")]:
        monkeypatch.delitem(sys.modules, name)
    for room in ("kernels", "tiled"):
        folder = tmp_path / "attnbook" / room
        folder.mkdir(parents=True)
        for name in ("loaded", "other"):
            (folder / f"{name}.py").write_text(KERNEL)
        module = type(sys)(f"attnbook.{room}.loaded")
        module.__file__ = str(folder / "loaded.py")
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(records, "ROOT", tmp_path)
    return tmp_path


@pytest.fixture
def card(monkeypatch, project):
    """A machine that says it has an H200; cases are put in place of the suite."""
    monkeypatch.setattr(command, "_taken", lambda device: "")
    monkeypatch.setattr(command, "machine", lambda device: "NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    return lambda *cases: monkeypatch.setattr(gpu_suite, "GPU_SUITE", cases)


def bench(*more):
    return main(["--device", "cuda", *more], prog="attnbook bench")


def written(project):
    return json.loads((project / "book" / "records" / "bench-nvidia-h200.json").read_text())


def test_a_record_can_be_quoted(card, project, capsys):
    """Device, versions, date, command, sources, and a value for every side and ratio, in units that claims know."""
    card(case("forward", FOUND))
    assert bench("--record") == 0
    made = Record.load(project / "book" / "records" / "bench-nvidia-h200.json")
    assert made.device == "NVIDIA H200"
    assert made.command == "attnbook bench --device cuda --record"
    assert {"python", "torch", "cuda", "cudnn", "attnbook"} <= set(made.versions)
    found = {key: (value.value, value.unit, value.spread) for key, value in made.values.items()}
    assert found == {
        "forward.attnbook": (380.0, "TFLOP/s", 1.5),
        "forward.cudnn": (520.0, "TFLOP/s", None),
        "forward.mm": (700.0, "TFLOP/s", None),
        "forward.of-mm": (0.54, "ratio", None),
        "forward.over-cudnn": (0.73, "ratio", None),
    }
    assert made.missing == {"forward.flash-varlen": "RuntimeError: no"}
    assert written(project)["cases"] == {"forward": "ok"}
    assert written(project)["method"].startswith("CUDA events")
    said = capsys.readouterr().out.splitlines()[-1]
    assert said == (
        "wrote book/records/bench-nvidia-h200.json: 5 values; it lacks forward.flash-varlen (RuntimeError: no)"
    )


def test_it_is_stale_once_a_kernel_that_ran_has_changed(card, project):
    """Neither a comment, nor a module that was not loaded, makes it so."""
    card(case("forward", FOUND))
    bench("--record")
    made = Record.load(project / "book" / "records" / "bench-nvidia-h200.json")
    assert list(made.sources) == ["attnbook/kernels/loaded.py"]
    folder = project / "attnbook" / "kernels"
    (folder / "other.py").write_text("")
    (folder / "loaded.py").write_text(KERNEL.replace("Its size", "How large"))
    assert made.stale() == ()
    (folder / "loaded.py").write_text(KERNEL.replace("64", "128"))
    assert made.stale() == ("attnbook/kernels/loaded.py",)


def test_the_real_sources_are_those_of_kernels_and_cases():
    """The modules of the cases themselves belong to it, and the clock; printing a table does not."""
    import attnbook.kernels.available

    found = sources(gpu_suite.GPU_SUITE, ("kernels",))
    assert {f"attnbook/bench/{name}.py" for name in (
        "ceilings", "clock", "expert_checks", "gpu_attention", "gpu_decode", "gpu_moe", "kernel_checks"
    )} <= set(found)  # fmt: skip
    assert "attnbook/kernels/available.py" in found
    assert not {"attnbook/bench/report.py", "attnbook/bench/record.py"} & set(found)
    assert attnbook.kernels.available.OLDEST


def test_what_was_not_measured_is_missing_with_its_reason(card, project):
    """Wrong, not run, failed, and what had no time."""
    slow = Case("late", "made up", Target(None, unit="GB/s"), lambda setting: FOUND, planned=1e6)
    card(case("forward", FOUND), case("decode", Disagree("differs")), case("moe", CannotRun("no memory")),
         case("failing", ZeroDivisionError("zero")), slow)  # fmt: skip
    assert bench("--record") == 1
    missing = written(project)["missing"]
    assert missing["decode"] == "WRONG: differs"
    assert missing["moe"] == "not run: no memory"
    assert missing["failing"] == "FAILED: ZeroDivisionError: zero"
    assert missing["late"].startswith("not run: planned for 1000000 s, and ")
    assert "forward" not in missing
    assert written(project)["cases"]["late"] == "not run"


def test_a_run_that_is_killed_leaves_what_it_had(card, project):
    """Beside the record, which it does not touch; what was still to come is missing."""

    class Killed(BaseException):
        pass

    def die(setting):
        raise Killed

    card(case("forward", FOUND))
    bench("--record")
    before = written(project)
    card(case("forward", FOUND), Case("decode", "made up", Target(None), die))
    with pytest.raises(Killed):
        bench("--record")
    assert written(project) == before
    left = Record.load(project / "book" / "records" / "bench-nvidia-h200.unfinished.json")
    assert "forward.attnbook" in left.values
    assert left.missing["decode"] == "the run had not come to it"
    card(case("forward", FOUND))
    bench("--record")
    assert [path.name for path in (project / "book" / "records").iterdir()] == ["bench-nvidia-h200.json"]


def test_a_replaced_record_is_announced(card, project, capsys):
    """With its date, and by name the values that are gone."""
    card(case("forward", FOUND), case("copy", FOUND))
    bench("--record")
    capsys.readouterr()
    card(case("forward", FOUND), case("copy", CannotRun("no memory")))
    assert bench("--record") == 2
    said = capsys.readouterr().out.splitlines()[-1]
    assert f"it replaces the record of {written(project)['date']}, and 5 of its values are gone: copy.attnbook" in said
    assert "it lacks copy (not run: no memory), forward.flash-varlen (RuntimeError: no)" in said


def test_a_part_does_not_replace_the_whole(card, project, capsys):
    """It is refused before anything is measured; another file may have it."""
    card(case("forward", FOUND), case("copy", FOUND))
    bench("--record")
    before = written(project)
    capsys.readouterr()
    assert bench("--only", "copy", "--record") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        "attnbook bench: book/records/bench-nvidia-h200.json holds forward, which this run leaves out and would take "
        "away: name another file after --record\n"
    )
    assert written(project) == before
    other = project / "elsewhere" / "part.json"
    assert bench("--only", "copy", "--record", str(other)) == 0
    made = Record.load(other)
    assert made.command == "attnbook bench --device cuda --only copy --record"  # no path of this machine
    assert set(made.values) == {key for key in before["values"] if key.startswith("copy.")}


def test_what_is_no_record_is_not_replaced(card, project, capsys):
    """It says what is wrong with the file and leaves it."""
    path = project / "book" / "records" / "bench-nvidia-h200.json"
    path.parent.mkdir()
    path.write_text("[]")
    card(case("forward", FOUND))
    assert bench("--record") == 2
    assert "expected an object, got list; it is not replaced" in capsys.readouterr().err
    assert path.read_text() == "[]"


def test_nothing_measured_is_no_record(card, project, capsys):
    """And no file."""
    card(case("forward", CannotRun("no memory")))
    assert bench("--record") == 2
    assert capsys.readouterr().out.splitlines()[-1].startswith("no record: nothing was measured")
    assert list((project / "book" / "records").iterdir()) == []


def test_small_sizes_make_no_record(card, capsys):
    """They are there to see that everything runs."""
    card(case("forward", FOUND))
    assert bench("--record", "--quick") == 2
    assert capsys.readouterr().err == ("attnbook bench: --quick measures small sizes, which no record is made of\n")


def test_the_cpu_has_a_record_of_its_own(project, monkeypatch, capsys):
    """Ratios, percentages, seconds and MiB; a JSON run says where it is."""
    monkeypatch.setattr(suite, "SUITE", (
        case("window", Finding(15.0, {"attnbook": 0.1, "sdpa, mask": 1.5}), Target(14.0)),
        case("auto", Finding(2.5, {"auto": 1e-3}), Target(3.0, at_least=False, unit="%")),
        case("memory", Finding(20.0, {"tiled": 4.0}, "MiB"), Target(16.0)),
    ))  # fmt: skip
    assert main(["--record", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["record"] == "wrote book/records/bench-cpu.json: 7 values"
    made = Record.load(project / "book" / "records" / "bench-cpu.json")
    found = {key: (value.value, value.unit) for key, value in made.values.items()}
    assert found == {
        "window": (15.0, "ratio"), "window.attnbook": (0.1, "s"), "window.sdpa-mask": (1.5, "s"),
        "auto": (2.5, "%"), "auto.auto": (1e-3, "s"), "memory": (20.0, "ratio"), "memory.tiled": (4.0, "MiB"),
    }  # fmt: skip
    assert (made.missing, list(made.sources)) == ({}, ["attnbook/tiled/loaded.py"])
    assert "thread" in made.device


def test_without_a_book_a_file_must_be_named(tmp_path, monkeypatch):
    """An installed package has no book beside it."""
    monkeypatch.setattr(records, "ROOT", tmp_path)
    with pytest.raises(CannotRecord, match="no book beside the package: name a file after --record"):
        default_path(Setting())


def test_what_is_not_finite_has_no_value():
    """JSON has no NaN, and a claim could not quote it."""
    made = values(case("x", None), Finding(float("nan"), {"a": 1.0}))
    assert set(made) == {"x.a"}


def test_every_case_has_units_that_claims_know():
    """Whatever the figure: TFLOP/s, GB/s, a ratio, seconds, MiB."""
    from attnbook.claims.numerals.units import UNITS

    for one in (*gpu_suite.GPU_SUITE, *suite.SUITE):
        rated = one.target.unit not in ("x", "%")
        found = FOUND if rated else Finding(1.0, {"a": 1.0}, "MiB")
        assert {value["unit"] for value in values(one, found).values()} <= set(UNITS), one.name


def test_verdicts_without_a_finding_have_no_values(project):
    """Nothing is written for them until one has."""
    recorder = Recorder(project / "r.json", Setting(machine="X"), "attnbook bench", [case("x", None)])
    recorder.update([Verdict(case("x", None), "not run", why="no memory")])
    assert not recorder.unfinished.exists()
