"""How every command ends: 0 done, 1 the answer is no, 2 wrong input; one sentence, and a traceback only on request."""

from __future__ import annotations

import inspect
import io
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Annotated, Any

import typer

from proofmap.cli import standard_streams as streams
from proofmap.cli.options import option_bundles as bundles
from proofmap.cli.options.option_values import Check
from proofmap.errors import FlatPictureError, ProofmapError, first_line

__all__ = ["app", "command"]

_WRONG, _BUG, _INTERRUPTED, _UNREAD = 2, 3, 130, 141  # the last two as of a program that SIGINT or SIGPIPE ends
_MEMORY = (
    "the memory does not suffice: close other programs, or give fewer inputs at a time or bounds that need less, such "
    "as --bounds crown-ibp; a run keeps what it has finished"
)


class Program(typer.Typer):
    """The commands as a program of its own, with what belongs to its process and to the shell that asks it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command; or say how the words that were typed so far may go on."""
        # Torch's threads wait for each other asleep, here and in every process that is started from here: by default
        # they spin, and take ten times as long where another program has a core. Before torch is loaded, or not at all.
        os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        streams.settle()
        if os.environ.get("_PROOFMAP_COMPLETE") != "complete_bash":
            return super().__call__(*args, **kwargs)
        before = _join_colons()
        answers = io.StringIO()
        try:
            with redirect_stdout(answers):
                return super().__call__(*args, **kwargs)
        finally:
            sys.stdout.write("".join(line.removeprefix(before) for line in answers.getvalue().splitlines(True)))


def _join_colons() -> str:
    """Put together the words that bash has ended at colons, as in zoo:mnist_mlp; bash completes what is after the last.

    Returns what is before that in the word that is to be completed.
    """
    words = os.environ.get("COMP_WORDS", "").split("\n")
    at = int(os.environ.get("COMP_CWORD", "0"))
    joined: list[str] = []
    for k, word in enumerate(words[: at + 1]):
        if k > 1 and ":" in (word, words[k - 1]):
            joined[-1] += word
        else:
            joined.append(word)
    os.environ |= {"COMP_WORDS": "\n".join([*joined, *words[at + 1 :]]), "COMP_CWORD": str(len(joined) - 1)}
    start, colon, _ = joined[-1].rpartition(":")
    return start + colon


app: Program = Program(
    no_args_is_help=True, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]}
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"proofmap {sys.modules['proofmap'].__version__}")
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show which version this is.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Explain what a neural network decided, with proofs."""
    context.obj = debug
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a terminal may have no ε


def command(function: Callable[..., None]) -> None:
    """Make a function a command; what its parameters may be says `bundles`.

    Options that carry a `Check` have passed it when the function is called.
    """
    options = bundles.options(function)
    checks = [(option.name, one) for option in options for one in bundles.metadata(option) if isinstance(one, Check)]

    def run(context: typer.Context, **given: Any) -> None:
        try:
            for name, check in checks:
                if given[name] is not None:
                    check.read(given[name])
            bundles.call(function, given)
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
                side = error.side if isinstance(error, FlatPictureError) else None
                option = "" if side is None else f"; on the command line, --size {side} states the picture's size"
                _end(f"error: {error}{option}", _WRONG)
            if _lacks_memory(error):
                _end(f"error: {_MEMORY} ({first_line(error)})", _WRONG)
            if isinstance(error, OSError):
                _end(f"error: {_refusal(error)}", _WRONG)
            _end(
                f"error: {type(error).__name__}: {error}; this is a bug of proofmap: proofmap --debug "
                f"{function.__name__} ... shows where it is",
                _BUG,
            )

    parameters = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context), *options]
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # which typer asks for
    app.command()(run)


def _lacks_memory(error: Exception) -> bool:
    """Whether memory ran out, be it while torch itself was loaded."""
    if isinstance(error, MemoryError) or any(words in str(error) for words in ("allocate memory", "failed to map")):
        return True
    if "torch" not in sys.modules:
        return False
    from proofmap.runtime.memory import is_out_of_memory

    return is_out_of_memory(error)


def _refusal(error: OSError) -> str:
    """What the system did not do, in one sentence."""
    place = "" if error.filename is None else f"{error.filename}: "
    return f"{place}{error.strerror or error}; check the path, the rights on it and the space on the disk"


def _end(message: str, code: int) -> None:
    typer.echo(message, err=True)
    raise typer.Exit(code) from None
