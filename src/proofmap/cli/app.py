"""How every command ends: 0 done, 1 the answer is no, 2 wrong input; one sentence, and a traceback only on request."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from proofmap.errors import ProofmapError

__all__ = ["app", "command"]

_WRONG, _BUG, _INTERRUPTED = 2, 3, 130

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def main(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
) -> None:
    """Explain what a neural network decided, with proofs."""
    context.obj = debug


def command(function: Callable[..., None]) -> None:
    """Make a function a command. Its first parameter is the typer.Context, which knows whether --debug was given."""

    @wraps(function)
    def run(context: typer.Context, *args: Any, **kwargs: Any) -> None:
        try:
            function(context, *args, **kwargs)
        except (typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            _end("interrupted", _INTERRUPTED)
        except Exception as error:
            if context.obj:
                raise
            if isinstance(error, ProofmapError):
                _end(f"error: {error}", _WRONG)
            _end(f"error: {type(error).__name__}: {error}; this is a bug of proofmap: see it with --debug", _BUG)

    app.command()(run)


def _end(message: str, code: int) -> None:
    typer.echo(message, err=True)
    raise typer.Exit(code) from None
