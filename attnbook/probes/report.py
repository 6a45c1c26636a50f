"""What a probe returns: what it checked, and what it found."""

from __future__ import annotations

from dataclasses import dataclass

SHOWN = 5
"""How many findings `str` prints; `Report.findings` holds them all."""


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be, in words and in numbers."""

    kind: str
    text: str
    output: int | None = None
    """The position of the output that is wrong, where there is one."""
    input: int | None = None
    """The position of the input that shows it, where there is one."""
    amount: float = 0.0
    """How far the output moved, in its own units."""
    module: str | None = None
    """The name of the module where it was found, as `named_modules` has it; empty for the outermost."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Report:
    """The outcome of one probe."""

    probe: str
    checked: str
    """What was done, for a person to judge whether it was enough."""
    findings: tuple[Finding, ...] = ()
    look: str = ""
    """Where to look, when something was found."""

    @property
    def ok(self) -> bool:
        """Was nothing found?"""
        return not self.findings

    def __str__(self) -> str:
        lines = [f"{self.probe}: {'ok' if self.ok else 'FOUND'} ({self.checked})"]
        lines += [f"  {finding}" for finding in self.findings[:SHOWN]]
        if len(self.findings) > SHOWN:
            lines.append(f"  and {len(self.findings) - SHOWN} more")
        if self.look:
            lines.append(f"  look at: {self.look}")
        return "\n".join(lines)
