"""What is printed: the machine, a line for each case, how many ended how; and the same as data."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from attnbook.bench.case import Case, Finding, Setting, Verdict, shown
from attnbook.records import processor

FINE, FOUND, COULD_NOT_RUN = 0, 1, 2


def machine(device: str) -> str:
    """The device's own name: the GPU's, or the processor's and how many threads torch takes."""
    import torch

    if device != "cpu":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{processor()}, {threads} thread{'s' if threads != 1 else ''}"


def versions(device: str) -> dict[str, str]:
    """Of everything that speed hangs on."""
    import torch

    found = {"python": platform.python_version(), "torch": torch.__version__}
    for name in ("triton", "attnbook"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if device != "cpu":
        found["cuda"] = str(torch.version.cuda)
        found["cudnn"] = str(torch.backends.cudnn.version())  # type: ignore[no-untyped-call]
        driver = getattr(torch._C, "_cuda_getDriverVersion", None)
        if driver is not None:
            found["cuda of the driver"] = str(driver())
    return found


def place(setting: Setting) -> dict[str, Any]:
    """Device, threads and versions: what figures hang on."""
    import torch

    return {
        "device": setting.device,
        "threads": torch.get_num_threads(),
        "machine": setting.machine,
        **versions(setting.device),
        "cpu capability": torch.backends.cpu.get_cpu_capability(),
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "not set"),
    }


class Table:
    """Lines of one width."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.name = max(len(case.name) for case in cases) + 1
        self.figure = max(9, *(len(str(case.target)) for case in cases))

    def head(self) -> str:
        """The names of the columns."""
        return f"{'case':<{self.name}} {'figure':>{self.figure}} {'asked':>{self.figure}}  verdict   ran     medians"

    def line(self, verdict: Verdict) -> str:
        """One case."""
        case, found = verdict.case, verdict.finding
        figure = "" if found is None else shown(found.figure, case.target.unit)
        first = f"{case.name:<{self.name}} {figure:>{self.figure}} {case.target!s:>{self.figure}}  {verdict.word:<8}"
        if found is None:
            return f"{first}  {verdict.why}"
        return f"{first}  {found.ran:<6}  {_details(found)}"


def _details(found: Finding) -> str:
    """Ratios, then each side's rate and time, then what is missing."""
    shares = [f"{value:.2f} {name}" if name.startswith("of ") else f"{value:.2f}x {name}"
              for name, value in found.shares.items()]  # fmt: skip
    sides = []
    for name, value in found.sides.items():
        rate = f"{found.rates[name]:.0f} {found.rate_unit} in " if name in found.rates else ""
        sides.append(f"{name} {rate}{_size(value, found.unit)}")
    parts = [", ".join(part) for part in (shares, sides) if part]
    parts += [f"without {name}: {why}" for name, why in found.absent.items()]
    note = f" ({found.note})" if found.note else ""
    return "; ".join(parts) + note


def _size(value: float, unit: str) -> str:
    if unit == "MiB":
        return f"{value:.1f} MiB"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def as_data(verdict: Verdict) -> dict[str, Any]:
    """One case for JSON."""
    case, found = verdict.case, verdict.finding
    made: dict[str, Any] = {
        "name": case.name, "what": case.what, "verdict": verdict.word, "unit": case.target.unit,
        "target": case.target.value, "at_least": case.target.at_least, "asked_of": case.target.card,
    }  # fmt: skip
    if found is None:
        return made | {"why": verdict.why}
    return made | {
        "figure": found.figure,
        "sides": dict(found.sides),
        "sides_unit": found.unit,
        "rates": dict(found.rates),
        "rate_unit": found.rate_unit,
        "shares": dict(found.shares),
        "spread": found.spread,
        "absent": dict(found.absent),
        "note": found.note,
        "ran": found.ran,
    }


def summary(verdicts: Sequence[Verdict], seconds: float) -> str:
    """How many ended how."""
    words = [verdict.word for verdict in verdicts]
    counted = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    return f"{len(words)} cases in {seconds:.0f} s: {counted}"


def status(verdicts: Sequence[Verdict]) -> int:
    """0 where all is met, 1 where something was missed, wrong or failed, 2 where something did not run."""
    words = {verdict.word for verdict in verdicts}
    if words & {"MISSED", "WRONG", "FAILED"}:
        return FOUND
    return COULD_NOT_RUN if "not run" in words else FINE
