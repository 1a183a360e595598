"""How every command ends: 0 done, 1 the answer is no, 2 wrong input; one sentence, and a traceback only on request."""

from __future__ import annotations

import inspect
import io
import os
import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer

from proofmap.errors import ProofmapError

__all__ = ["app", "command"]

_WRONG, _BUG, _INTERRUPTED, _UNREAD = 2, 3, 130, 141  # the last two as of a program that SIGINT or SIGPIPE ends

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def main(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
) -> None:
    """Explain what a neural network decided, with proofs."""
    context.obj = debug
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a terminal may have no ε


def command(function: Callable[..., None]) -> None:
    """Make a function a command. Its first parameter is the typer.Context, which knows whether --debug was given.

    A parameter that is a dataclass of options stands for all of them: commands share them without naming each.
    """
    parameters: list[inspect.Parameter] = []
    bundles: dict[str, tuple[type[Any], list[str]]] = {}
    for parameter in inspect.signature(function, eval_str=True).parameters.values():
        kind = parameter.annotation
        if not (isinstance(kind, type) and is_dataclass(kind)):
            parameters.append(parameter)
            continue
        hints = get_type_hints(kind, include_extras=True)
        bundles[parameter.name] = kind, list(hints)
        parameters += [
            inspect.Parameter(f.name, parameter.kind, default=f.default, annotation=hints[f.name]) for f in fields(kind)
        ]

    def run(**given: Any) -> None:
        context: typer.Context = given["context"]
        for name, (kind, names) in bundles.items():
            given[name] = kind(**{own: given.pop(own) for own in names})
        try:
            function(**given)
        except (typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            _end("interrupted", _INTERRUPTED)
        except BrokenPipeError:  # head has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be flushed
            raise typer.Exit(_UNREAD) from None
        except Exception as error:
            if context.obj:
                raise
            if isinstance(error, ProofmapError):
                _end(f"error: {error}", _WRONG)
            if isinstance(error, OSError):
                _end(f"error: {_refusal(error)}", _WRONG)
            _end(
                f"error: {type(error).__name__}: {error}; this is a bug of proofmap: proofmap --debug "
                f"{function.__name__} ... shows where it is",
                _BUG,
            )

    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # which typer asks for
    app.command()(run)


def _refusal(error: OSError) -> str:
    """What the system did not do, in one sentence."""
    place = "" if error.filename is None else f"{error.filename}: "
    return f"{place}{error.strerror or error}; check the path, the rights on it and the space on the disk"


def _end(message: str, code: int) -> None:
    typer.echo(message, err=True)
    raise typer.Exit(code) from None
