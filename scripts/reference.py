"""Write the reference pages from the code: every public name, and every command with its options.

python scripts/reference.py          # docs/reference/names.md and docs/reference/commands.md
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any, get_origin

import typer

import proofmap as pm
from proofmap.cli import app

PAGE_FOLDER = Path(__file__).parents[1] / "docs" / "reference"
MODULES = (
    "bounds",
    "groups",
    "objectives",
    "metrics",
    "explainers",
    "plots",
    "data",
    "zoo",
)  # public modules of pm, in the order of the page
SET_UP = """\
import torch
import proofmap as pm

model, x = pm.zoo.mnist_mlp(), pm.data.digits()[0][:2]        # a trained network and two digits
ball, cells = pm.Ball(0.01, domain=(0.0, 1.0)), pm.groups.grid(4)
maps = pm.EVA(model, ball, groups=cells).explain(x).attributions
"""
_NOTE = "<!-- written by scripts/reference.py -->\n"


def documented(thing: object) -> bool:
    """Return whether the value has its own docstring: a class, a function or a module."""
    is_class = inspect.isclass(thing) and get_origin(thing) is None  # Python 3.10 treats an alias as a class
    return is_class or inspect.isroutine(thing) or isinstance(thing, ModuleType)


def public() -> dict[str, Any]:
    """Return every public name, such as `pm.EVA` or `pm.bounds.IBP`, with its value."""
    names: dict[str, Any] = {f"pm.{name}": getattr(pm, name) for name in pm.__all__}
    for module in MODULES:
        inside = getattr(pm, module)
        names |= {f"pm.{module}.{name}": getattr(inside, name) for name in inside.__all__ if name not in pm.__all__}
    return {name: thing for name, thing in names.items() if documented(thing)}


def names_page() -> str:
    """Return the page of names by module, each with its signature, its text, its members and its example."""
    shared = (
        "[Explainer](#pmexplainersexplainer) describes the settings that all explainers share: "
        "`groups`, `batch`, `progress` and `memory`."
    )
    lines = [_NOTE, "# Names", "", shared, "", "The examples use these names:", "", f"```python\n{SET_UP}```"]
    found = public()
    for module in ("", *MODULES):
        start = f"pm.{module}" if module else "pm"
        lines += ["", f"## {start}", *(described(getattr(pm, module)) if module else [])]
        for name in found:
            if name.rpartition(".")[0] == start and not isinstance(found[name], ModuleType):
                lines += ["", f"### {name}", *_signature(name, found[name]), *described(found[name])]
    return "\n".join(lines) + "\n"


def described(thing: Any) -> list[str]:
    """Return a docstring as Markdown: settings as a list, the example as a block, and the members of a class."""
    text, mark, example = (inspect.getdoc(thing) or "").partition(">>> ")
    settings = set(_parameters(thing))
    lines: list[str] = []
    for paragraph in text.strip().split("\n\n"):
        lines.append("")
        if paragraph.startswith("    "):
            lines += paragraph.splitlines()
            continue
        for line in paragraph.splitlines():
            name, listed = line.partition(":")[0], lines[-1].startswith(("- ", "  "))
            if name in settings:
                lines += [*([""] if lines[-1] and not listed else []), f"- `{name}`: {_plain(line[len(name) + 2 :])}"]
            else:
                lines.append(f"{'  ' * listed}{_plain(line.strip())}")
    return [*lines, *_members(thing), "", "```pycon", f"{mark}{example.strip()}", "```"]


def _members(thing: Any) -> list[str]:
    """Return the public methods and properties of a class, each with the first sentence of its docstring."""
    rows = []
    for name, member in _own(thing).items():
        inner = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        text = inspect.getdoc(inner) if isinstance(inner, property) or inspect.isfunction(inner) else None
        if text and not name.startswith("_"):
            call = "" if isinstance(inner, property) else f"({', '.join(_parameters(inner, 1))})"
            rows.append(f"| `.{name}{call}` | {_plain(_flat(text.split(chr(10) * 2)[0]))} |")
    return ["", "| Member | Meaning |", "| --- | --- |", *rows] if rows else []


def _own(thing: Any) -> dict[str, Any]:
    """Return the members of a class, with those of its base classes that have no public name."""
    if not inspect.isclass(thing):
        return {}
    named = [one for one in thing.__mro__[1:] if one in public().values()]  # they have their members on this page
    bases = [one for one in thing.__mro__[1:] if not any(issubclass(known, one) for known in named)]
    hidden = [one for one in bases if one.__module__.startswith("proofmap.")]
    found = dict(vars(thing))
    for name, member in (pair for one in hidden for pair in vars(one).items()):
        found.setdefault(name, member)
    return found


def _signature(name: str, thing: Any) -> list[str]:
    """Return the signature: names and plain defaults, without types."""
    words: list[str] = []
    for one in _parameters(thing):
        parameter = inspect.signature(thing).parameters[one]
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        plain = parameter.default is None or isinstance(parameter.default, int | float | str | tuple)
        words.append(f"{one}={parameter.default!r}" if plain else one)
    return ["", f"`{name.removesuffix('()')}({', '.join(words)})`"] if words else []


def _parameters(thing: Any, first: int = 0) -> list[str]:
    """Return the names of the parameters."""
    try:
        names = list(inspect.signature(thing).parameters)
    except (TypeError, ValueError):  # an exception class, or a module
        return []
    return [name for name in names[first:] if name not in ("args", "kwargs") and name.strip("_")]


def _plain(text: str) -> str:
    """Escape stars and brackets outside of `code`."""
    parts = text.split("`")
    parts[::2] = [part.replace("*", "\\*").replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def commands_page() -> str:
    """Return the page of commands, each with its arguments and options as in `--help`."""
    group: Any = typer.main.get_command(app)
    top = group.make_context("proofmap", [], resilient_parsing=True)
    lines = [
        _NOTE,
        "# Every command and option",
        "",
        "[The command line](../command-line.md) contains examples.",
    ]
    for name, command in group.commands.items():
        context = command.make_context(name, [], parent=top, resilient_parsing=True)
        usage = " ".join(["proofmap", name, *command.collect_usage_pieces(context)])
        records = [option.get_help_record(context) for option in command.get_params(context)]
        rows = [f"`{_flat(record[0])}` | {_typed(_flat(record[1]))}" for record in records if record]
        lines += [
            "",
            f"## {name}",
            "",
            "\n\n".join(_typed(_flat(part)) for part in command.help.split("\n\n")),
            "",
            f"`{usage}`",
            "",
            "| Argument or option | Meaning |",
            "| --- | --- |",
        ]
        lines += [f"| {row} |" for row in rows]
    return "\n".join(lines) + "\n"


def _typed(text: str) -> str:
    """Mark commands and options with their values as `code`."""
    before, mark, command = text.partition("For instance: proofmap ")
    whole = f"For instance: `proofmap {command}`" if mark else ""
    return re.sub(r"(?<!\S)--[a-z][a-z-]*(?: [\w.,:/+-]*[\d.:+][\w.,:/+-]*\b)?", r"`\g<0>`", before) + whole


def _flat(text: str) -> str:
    """Return the text as one line of a table."""
    return " ".join(text.split()).replace("|", "\\|")


PAGES = {"names.md": names_page, "commands.md": commands_page}


def main() -> None:
    """Write the pages."""
    for name, page in PAGES.items():
        (PAGE_FOLDER / name).write_text(page(), encoding="utf-8")
        print(f"wrote {name}")


if __name__ == "__main__":
    main()
