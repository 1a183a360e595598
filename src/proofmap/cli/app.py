"""The typer application: it runs a command, and turns errors into one sentence and an exit code.

Exit codes: 0 done; 1 the answer is no; 2 wrong input; 3 a bug; 130 interrupted; 141 nobody reads the output.
"""

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
from proofmap.errors import FlatPictureError, ProofmapError, first_line

_EXIT_WRONG_INPUT, _EXIT_BUG = 2, 3  # the exit codes of the module's docstring
_EXIT_INTERRUPTED, _EXIT_UNREAD = 130, 141  # the codes of programs that SIGINT and SIGPIPE end
_OUT_OF_MEMORY = (
    "there is not enough memory: close other programs, give fewer inputs at a time, or use bounds that need less "
    "memory, such as --bounds crown-ibp; a run keeps the samples that it has finished"
)
_OPTIONS = {"folder": "--data", "certified": "proofmap run --certificates"}  # options of arguments with another name


class Program(typer.Typer):
    """The program `proofmap`. It sets up its process, and completes words for the shell."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command, or print the completions of the words that were typed so far."""
        # Threads of torch sleep while they wait, in this process and in those that it starts. By default they spin.
        # Spinning is ten times as slow if another program uses a core. The variable must be set before torch loads.
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
    """Join words that bash split at colons, such as zoo:mnist_mlp. Bash completes only the part after the last colon.

    Returns the part of the word that is in front of it.
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


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"proofmap {sys.modules['proofmap'].__version__}")
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Explain decisions of neural networks, with proofs."""
    context.obj = debug
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may lack ε


def command(function: Callable[..., None]) -> None:
    """Make a function a command. `bundles` explains which parameters it may have.

    The checks of each option run before the function is called.
    """
    options = bundles.options(function)
    checks = [(option.name, check) for option in options for check in bundles.checks(option)]
    for option in options:
        bundles.complete(option)

    def run(context: typer.Context, **given: Any) -> None:
        try:
            for name, check in checks:
                if given[name] is not None:
                    check.read(given[name])
            bundles.call(function, given)
        except (typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            _end("interrupted", _EXIT_INTERRUPTED)
        except BrokenPipeError:  # a reader such as `head` has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # takes what is flushed later
            raise typer.Exit(_EXIT_UNREAD) from None
        except Exception as error:
            if context.obj:
                raise
            if isinstance(error, ProofmapError):
                _end(f"error: {error}{_options_of(error, str(given.get('model', '')))}", _EXIT_WRONG_INPUT)
            if _is_out_of_memory(error):
                _end(f"error: {_OUT_OF_MEMORY} ({first_line(error)})", _EXIT_WRONG_INPUT)
            if isinstance(error, OSError):
                _end(f"error: {_system_message(error)}", _EXIT_WRONG_INPUT)
            _end(
                f"error: {type(error).__name__}: {error}; this is a bug of proofmap: proofmap --debug "
                f"{function.__name__} ... shows where it is",
                _EXIT_BUG,
            )

    parameters = [inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context), *options]
    run.__name__, run.__doc__ = function.__name__, function.__doc__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it
    app.command()(run)


def _options_of(error: ProofmapError, model: str) -> str:
    """Return the options that set the arguments which a library error names, as the end of its sentence."""
    if isinstance(error, FlatPictureError) and error.side is not None:
        side = error.side
        if model.endswith(".onnx"):
            return f"; on the command line, --size {side} states the picture's size"
        # a module states no input shape, so that a size cannot put a flattening in front of it
        advice = f"begin the module with torch.nn.Flatten(), and give samples of the shape (1, {side}, {side})"
        return f"; for the command line, {advice}"
    while not error.arguments:
        if not isinstance(error.__cause__, ProofmapError):
            return ""
        error = error.__cause__
    options = [_OPTIONS.get(name, "--" + name.replace("_", "-").replace("=", " ")) for name in error.arguments]
    return f"; on the command line: {', '.join(options)}"


def _is_out_of_memory(error: Exception) -> bool:
    """Return whether memory ran out, also while torch itself was being loaded."""
    if isinstance(error, MemoryError) or any(words in str(error) for words in ("allocate memory", "failed to map")):
        return True
    if "torch" not in sys.modules:
        return False
    from proofmap.runtime.memory import is_out_of_memory

    return is_out_of_memory(error)


def _system_message(error: OSError) -> str:
    """Describe an error of the operating system in one sentence."""
    place = "" if error.filename is None else f"{error.filename}: "
    return f"{place}{error.strerror or error}; check the path, its permissions and the space on the disk"


def _end(message: str, code: int) -> None:
    typer.echo(message, err=True)
    raise typer.Exit(code) from None
