"""The command `proofmap report`: write explanations and runs as one HTML page."""

from pathlib import Path
from typing import Annotated

import typer

from proofmap.cli.options import option_values as texts
from proofmap.cli.options.model_and_inputs import ModelOptions
from proofmap.cli.options.option_bundles import unset
from proofmap.cli.saved_explanations import saved
from proofmap.errors import InputError


def report(
    *,
    out: Annotated[Path, typer.Argument(metavar="OUT.html", help="The page to write.", show_default=False)],
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT...",
            help="Files that proofmap explain wrote (.proofmap), folders of them, or folders of proofmap run.",
            show_default=False,
        ),
    ],
    table: Annotated[
        Path | None,
        unset(
            "Add a comparison of methods: the CSV file of bench or compare, or the output of compare --json: --table "
            "table.csv"
        ),
    ] = None,
    model: Annotated[
        str | None,
        unset(
            "The explained model: --model net.onnx. An attack on it then gives lower bounds of the overlaps. For "
            "runs, the report only checks that it is the same model."
        ),
    ] = None,
    by: Annotated[
        str | None,
        unset('The author of the report: --by "Ada Lovelace, Analytical Engines". By default, a line to sign.'),
    ] = None,
    date: Annotated[
        str | None,
        unset("The date of the report, by default today: --date 2026-03-01. The same arguments give the same bytes."),
        texts.Check(texts.day),
    ] = None,
    source: ModelOptions,
) -> None:
    """Write one HTML file: the maps of each input, what is proven and what is not, and how the results were made.

    The file works offline, on paper, on a phone and with a screen reader.

    For instance: proofmap report report.html maps --model zoo:mnist_mlp
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"got the page {out}, expected a name that ends in .html: the page comes before the inputs")
    if model is None and source != ModelOptions(classes=source.classes):
        raise InputError("got --weights or other options of a model without --model, expected the model they belong to")

    from proofmap.explainers import Explanation
    from proofmap.report import read_table
    from proofmap.report import report as write
    from proofmap.runs import Results
    from proofmap.runs.manifest import MANIFEST
    from proofmap.sources.preparation import read_classes

    compared = None if table is None else read_table(table)
    names = None if source.classes is None else read_classes(source.classes)
    explained = None if model is None else source.model(model)
    if explained is not None:
        names = explained.classes
    runs = [path for path in inputs if (path / MANIFEST).is_file()]
    explanations = [(file.stem, Explanation.load(file)) for path in inputs if path not in runs for file in saved(path)]
    opened = [(path.resolve().name, Results.open(path)) for path in runs]
    day = None if date is None else texts.day(date)
    write(out, explanations, classes=names, table=compared, model=explained, runs=opened, by=by, date=day)
    typer.echo(f"wrote {out}")
