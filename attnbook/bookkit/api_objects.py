"""What the API pages say about an object: its kind, public path, signature, docstring, members, source files.

Pure inspection; knows nothing of Sphinx's documents.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any, Literal

_HOOKS = {"extra_repr"}
"""Methods that a base class of others calls; nobody else does."""

Kind = Literal["function", "class", "exception", "method", "property"]


@dataclass(frozen=True)
class Described:
    """One description; `files[0]` holds the object itself, the others what it inherits from.

    `module` and `path` are the public ones; `defined_in` is the module that defines it, there named `qualified`.
    """

    kind: Kind
    module: str
    path: str
    signature: str
    docstring: str
    files: tuple[str, ...]
    line: int
    defined_in: str
    qualified: str
    parameters: frozenset[str] = frozenset()
    options: dict[str, str] = field(default_factory=dict)
    members: tuple[Described, ...] = ()

    @property
    def place(self) -> str:
        """File and line, to be found by."""
        return f"{self.files[0]}:{self.line}"

    def with_members(self) -> Iterator[Described]:
        """It and its members, in the order in which they are written."""
        yield self
        for member in self.members:
            yield from member.with_members()


def public_names(module: str, below: list[str] | None = None) -> list[str]:
    """The functions and classes of a module's `__all__`, in the order of their definition, file by file.

    With `below`, only those defined in one of those modules below `module`; file after file in that order.
    """
    home = import_module(module)
    found: list[tuple[Any, ...]] = []
    for name in getattr(home, "__all__", []):
        item = getattr(home, name)
        if isinstance(item, ModuleType) or not callable(item):
            continue
        defined = getattr(item, "__module__", "")
        place = below.index(_last(defined, module)) if below and _last(defined, module) in below else None
        if below is None or place is not None:
            found.append((place or 0, defined if below is None else "", _line(item), name))
    return [name for *_, name in sorted(found)]


def missing(module: str, name: str) -> str:
    """What is wrong with a name that should be in a module; "" where it is there."""
    home = import_module(module)
    if not hasattr(home, name):
        return f"{module} has no name {name}; it has {', '.join(getattr(home, '__all__', []))}"
    item = getattr(home, name)
    if not (inspect.isclass(item) or inspect.isroutine(item)):
        return f"{module}.{name} is no function and no class"
    return ""


def describe(module: str, name: str) -> Described:
    """The description of a public name of a module, by its shortest public path."""
    item = getattr(import_module(module), name)
    public = _shortest(module, name, item)
    if not inspect.isclass(item):
        return _routine("function", public, f"{public}.{name}", item)
    kind: Kind = "exception" if issubclass(item, BaseException) else "class"
    parameters = _parameters(item)
    return Described(
        kind=kind,
        module=public,
        path=f"{public}.{name}",
        signature=name + ("" if kind == "exception" else _signature(item)),
        docstring=inspect.cleandoc(item.__doc__ or ""),
        files=tuple(dict.fromkeys(_file(base) for base in _ours(item))),
        line=_line(item),
        defined_in=item.__module__,
        qualified=item.__qualname__,
        parameters=frozenset(parameters),
        options={"module": public},
        members=tuple(_members(item, public, f"{public}.{name}")),
    )


def _members(owner: type, module: str, path: str) -> Iterator[Described]:
    """Public methods and properties that our own classes define, the nearest definition of each, base classes last."""
    seen = set()
    for base in _ours(owner):
        for name, value in vars(base).items():
            if name.startswith("_") or name in seen or name in _HOOKS:
                continue
            seen.add(name)
            target = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            target = getattr(value, "func", target) if isinstance(value, functools.cached_property) else target
            if not inspect.isfunction(target):
                continue
            if target.__name__ != name and name not in target.__qualname__:
                continue  # a function that is an attribute, such as the attention that a module calls
            if isinstance(value, property | functools.cached_property):
                yield dataclasses.replace(
                    _routine("property", module, f"{path}.{name}", target),
                    signature=name,
                    options={"type": _type(target)} if _type(target) else {},
                )
            else:
                flags = {kind.__name__: "" for kind in (classmethod, staticmethod) if isinstance(value, kind)}
                first = not isinstance(value, staticmethod)
                yield dataclasses.replace(_routine("method", module, f"{path}.{name}", target, first), options=flags)


def _routine(kind: Kind, module: str, path: str, item: Any, drop_first: bool = False) -> Described:
    name = path.rpartition(".")[2]
    return Described(
        kind=kind,
        module=module,
        path=path,
        signature=name + _signature(item, drop_first),
        docstring=inspect.cleandoc(item.__doc__ or ""),
        files=(_file(item),),
        line=_line(item),
        defined_in=_plain(item).__module__,
        qualified=_plain(item).__qualname__,
        parameters=frozenset(_parameters(item)),
        options={"module": module} if kind == "function" else {},
    )


def _signature(item: Any, drop_first: bool = False) -> str:
    """The signature with short type names; "()" for a class that has none of its own."""
    from sphinx.util.inspect import stringify_signature

    try:
        signature = inspect.signature(item)
    except (TypeError, ValueError):
        return "()"
    parameters = list(signature.parameters.values())[1 if drop_first else 0 :]
    shown = signature.replace(parameters=parameters)
    if inspect.isclass(item):
        shown = shown.replace(return_annotation=inspect.Signature.empty)
    return stringify_signature(shown, unqualified_typehints=True)


def _parameters(item: Any) -> list[str]:
    try:
        return list(inspect.signature(item).parameters)
    except (TypeError, ValueError):
        return []


def _type(getter: Any) -> str:
    returned = getattr(getter, "__annotations__", {}).get("return", "")
    return returned if isinstance(returned, str) else getattr(returned, "__name__", str(returned))


def _ours(owner: type) -> list[type]:
    """The class and its bases that are of the same package."""
    package = owner.__module__.partition(".")[0]
    return [base for base in owner.__mro__ if base.__module__.partition(".")[0] == package]


def _shortest(module: str, name: str, item: object) -> str:
    """The shortest public module above `module` that gives the same object by the same name."""
    parts = module.split(".")
    for length in range(1, len(parts)):
        above = ".".join(parts[:length])
        home = import_module(above)
        if name in getattr(home, "__all__", []) and getattr(home, name) is item:
            return above
    return module


def _last(defined: str, module: str) -> str:
    return defined.removeprefix(f"{module}.")


def _plain(item: Any) -> Any:
    """A function without its decorators; a class as it is."""
    return inspect.unwrap(item) if inspect.isroutine(item) else item


def _file(item: Any) -> str:
    return inspect.getsourcefile(_plain(item)) or ""


def _line(item: Any) -> int:
    try:
        return inspect.getsourcelines(_plain(item))[1]
    except (OSError, TypeError):
        return 1
