"""One kernel with all it is given: what the backward pass starts and the compile report compiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from attnbook.kernels import targets
from attnbook.kernels.flash.configs import Config
from attnbook.kernels.variant import ALWAYS


@dataclass(frozen=True)
class Launch:
    """One kernel, ready to start."""

    kernel: Any
    programs: int
    given: dict[str, Any]
    """Its arguments by name, and maybe those of other kernels: it takes what it has parameters for."""
    constants: dict[str, Any]
    config: Config

    def start(self) -> None:
        if self.programs:
            values = self.given | self.constants
            options = {**ALWAYS, "num_warps": self.config.num_warps, "num_stages": self.config.num_stages}
            with targets.on_device_of(values["row_lse"]):
                self.kernel[(self.programs,)](**{name: values[name] for name in self.kernel.arg_names}, **options)
