"""`attnbook experiment`: list the experiments without loading torch, or run one and print what it measured."""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from attnbook import experiments
from attnbook.cli import FINE, CannotRun, print_json
from attnbook.measure import Findings


class Summary(NamedTuple):
    """What the source of an experiment says about it."""

    name: str
    question: str
    settings: dict[str, str]
    """Keyword to default, as written."""


def main(arguments: Sequence[str]) -> int:
    """List, or run one; an experiment that fails is exit status 2."""
    parser = argparse.ArgumentParser(
        prog="attnbook experiment",
        description="List the experiments behind the book's numbers, or run one and print its measurements.",
    )
    parser.add_argument("name", nargs="?", help="the experiment to run; without it, all are listed")
    parser.add_argument("--json", action="store_true", help="print a JSON list")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], dest="settings",
        help="a setting of the experiment, as a Python literal; may be repeated",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    if options.name is None:
        if options.settings:
            raise CannotRun("--set needs the name of an experiment")
        _print_list(list(summaries()), as_json=options.json)
    else:
        _print_findings(run(options.name, options.settings), as_json=options.json)
    return FINE


def summaries() -> Iterator[Summary]:
    """All experiments, read from their sources: nothing is imported, so neither is torch."""
    for folder in experiments.__path__:
        for module in sorted(pkgutil.iter_modules([folder]), key=lambda module: module.name):
            path = Path(folder, f"{module.name}.py")
            if module.name.startswith("_") or not path.is_file():
                continue
            tree = ast.parse(path.read_text(encoding="utf-8"))
            function = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "run"), None)
            if function is not None:
                question = (ast.get_docstring(tree) or "").partition("\n\n")[0].replace("\n", " ")
                yield Summary(module.name, question, _defaults(function.args))


def run(name: str, settings: Sequence[str] = ()) -> Findings:
    """Run an experiment with settings given as `key=value` texts.

    Raises CannotRun for an unknown experiment or setting, a value that is no Python literal, a missing dependency, or
    an experiment that raises.
    """
    known = [summary.name for summary in summaries()]
    if name not in known:
        raise CannotRun(f"there is no experiment {name!r}; there are: {', '.join(known) or 'none'}")
    try:
        function: Callable[..., Any] = importlib.import_module(f"attnbook.experiments.{name}").run
    except ModuleNotFoundError as error:
        raise CannotRun(
            f"experiment {name} needs {error.name}, which is not installed: pip install 'attnbook[torch]'"
        ) from error
    keywords = _keywords(name, settings, inspect.signature(function).parameters)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output holds the measurements and nothing else
            findings = function(**keywords)
    except Exception as error:  # whatever an experiment raises, the command has one clear line for it
        raise CannotRun(f"experiment {name} failed: {type(error).__name__}: {error}") from error
    if not isinstance(findings, Findings):
        raise CannotRun(f"experiment {name} returned {type(findings).__name__}: decorate run with @experiment")
    return findings


def _defaults(arguments: ast.arguments) -> dict[str, str]:
    positional = arguments.posonlyargs + arguments.args
    given = {argument.arg: "" for argument in positional}
    with_default = positional[len(positional) - len(arguments.defaults) :]
    given |= {a.arg: ast.unparse(default) for a, default in zip(with_default, arguments.defaults, strict=True)}
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        given[argument.arg] = ast.unparse(default) if default is not None else ""
    return given


def _keywords(name: str, settings: Sequence[str], parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    keywords: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals:
            raise CannotRun(f"--set {setting}: expected KEY=VALUE")
        if key not in parameters:
            raise CannotRun(f"experiment {name} has no setting {key!r}; it has: {', '.join(parameters) or 'none'}")
        if key in keywords:
            raise CannotRun(f"--set {key} is given twice")
        try:
            keywords[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError) as error:
            raise CannotRun(f"--set {setting}: {text!r} is not a Python literal (a text needs its quotes)") from error
    missing = [
        key for key, parameter in parameters.items() if parameter.default is parameter.empty and key not in keywords
    ]
    if missing:
        raise CannotRun(f"experiment {name} needs --set for: {', '.join(missing)}")
    return keywords


def _print_list(found: list[Summary], *, as_json: bool) -> None:
    if as_json:
        print_json([summary._asdict() for summary in found])
        return
    width = max((len(summary.name) for summary in found), default=0)
    for summary in found:
        print(f"{summary.name:<{width}}  {summary.question}")
        if summary.settings:
            settings = ", ".join(f"{key}={value}" if value else key for key, value in summary.settings.items())
            print(f"{'':<{width}}  settings: {settings}")


def _print_findings(findings: Findings, *, as_json: bool) -> None:
    if as_json:
        print_json([measurement.as_json() for measurement in findings])
        return
    for measurement in findings:
        kind = f"  [{measurement.kind}]" if measurement.kind != "measured" else ""
        print(f"{measurement}{kind}")
