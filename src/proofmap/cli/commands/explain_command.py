"""The command `proofmap explain`: an attribution map and a .proofmap file for each input."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from proofmap.cli.options import option_values as texts
from proofmap.cli.options import shared_options as o
from proofmap.cli.options.model_and_inputs import Subject
from proofmap.cli.options.option_bundles import unset
from proofmap.errors import InputError
from proofmap.registry import EXPLAINER_ENTRIES, EXPLAINERS

if TYPE_CHECKING:
    from proofmap.explainers import Explainer


@dataclass(frozen=True)
class Written:
    """Options of the output files."""

    out: Annotated[Path, typer.Option(help="The folder for pictures and .proofmap files: --out maps")] = Path("out")
    certificate: Annotated[
        Path | None,
        unset(
            "Write a certificate of the proof for one input, with the input and the network beside it, so that others "
            "can check it: --certificate digit.proof"
        ),
    ] = None
    as_json: o.Json = False


def explain(
    *,
    ball: o.BallOptions,
    scoring: o.Scoring,
    method: Annotated[
        str | None,
        unset(
            f"The method: {', '.join(EXPLAINERS)}. eva and targeted prove their bounds. --method targeted shows which "
            "changes lead to the class --target. probable needs --norm 2 and explains the vote over noisy copies. By "
            "default eva; without --eps, a method that fits the time.",
            autocompletion=o.among(EXPLAINERS),
        ),
        texts.one_of(EXPLAINERS, "--method"),
    ] = None,
    within: Annotated[
        float,
        typer.Option(help="Without --eps and --method: the time limit per input in seconds: --within 60"),
        texts.above_zero("--within", "60"),
    ] = 60.0,
    rigorous: Annotated[
        bool | None,
        unset(
            "With eva or targeted: proofs also cover all rounding errors of the model in float32. --no-rigorous is "
            "faster. By default on for all models whose rounding errors can be bounded.",
            "--rigorous/--no-rigorous",
        ),
    ] = None,
    limit: o.Limit = None,
    written: Written,
    subject: Subject,
) -> None:
    """Explain decisions: print a bound over the ball of each input, and draw a map of the parts that matter.

    For instance: proofmap explain zoo:mnist_mlp digit.png --eps 0.02 --groups grid:12 --out maps

    Without --eps and --method, Proofmap chooses a map and the strongest proof that fit into --within, and says why.
    """
    out, certificate, as_json = written.out, written.certificate, written.as_json
    if certificate is not None:
        _check_certificate(certificate, method)
        method = method or "eva"
    automatic = method is None and scoring.bounding.bounds is None and rigorous is None
    if automatic and ball.chosen and not subject.boxed:
        _explain_automatically(ball, scoring, within, limit, out, as_json, subject)
        return
    method = "eva" if method is None else method
    if EXPLAINER_ENTRIES[method].target and scoring.target is None:
        raise InputError(f"got --method {method} alone, expected the class to move to as well: give --target")

    from proofmap.cli import explain_certificates as certificates
    from proofmap.cli import explain_output as maps
    from proofmap.cli.options.samples_and_balls import graphs, read_cases
    from proofmap.text.wording import plural, smoothed, taken_off

    kind: type[Explainer] = EXPLAINER_ENTRIES[method].kind
    settings = {"groups": o.groups_of(scoring.groups), **o.bounds_of(scoring.bounding, method, kind)}
    if rigorous is not None:
        o.check_proves(method, kind, rigorous)
        settings["rigorous"] = rigorous
    model, cases = read_cases(subject, ball, default="auto", limit=limit)
    target = o.class_of(scoring.target, model.classes)
    networks = graphs(cases, model)
    if certificate is not None:
        certificates.check(cases, networks)
        o.make_folder(certificate.parent)
    o.make_folder(out)
    made: dict[tuple[tuple[int, ...], int], Explainer] = {}
    records = []
    for case, stem in zip(cases, maps.stems([case.name for case in cases]), strict=True):
        key = (case.shape, id(case.ball))
        if key not in made:
            made[key] = kind(networks[case.shape], case.ball, **settings)
        explanation = replace(made[key].explain(case.x, target), origin=maps.origin(case, model))
        file, picture = out / f"{stem}.proofmap", out / f"{stem}.map.png"
        explanation.save(file)
        explanation.plot().savefig(picture)
        records.append(maps.record(case, explanation, model, file, picture))
        said = None
        if certificate is not None:
            files, said = certificates.write(explanation, certificate)
            records[-1] |= {"certificate": files[0]} if len(files) == 1 else {"certificates": files}
        if not as_json:
            typer.echo("\n".join([maps.line(case, explanation, model), *([] if said is None else [said])]))
    if as_json:
        typer.echo(json.dumps({"model": model.name, "method": method, "inputs": records}, indent=1))
    else:
        if (off := explanation.settings.get("taken_off")) is not None:
            typer.echo(f"note: {taken_off(off)}")
        if explanation.guarantee == "probable":
            typer.echo(f"note: {smoothed(explanation.settings)}")
        if any(record.get("rigorous") is False for record in records):
            o.tell((o.ROUNDINGS,))
        typer.echo(f"wrote {plural(len(cases), 'map')} to {out}")


def _check_certificate(path: Path, method: str | None) -> None:
    """Refuse methods and file names without certificates, before anything is read."""
    if method not in (None, "eva", "targeted"):
        raise InputError(
            f"got --certificate with --method {method}, expected eva or targeted: certificates are about their overlaps"
        )
    if path.suffix != ".proof":
        raise InputError(f"got --certificate {path}, expected a name that ends in .proof")


def _explain_automatically(
    ball: o.BallOptions,
    scoring: o.Scoring,
    within: float,
    limit: int | None,
    out: Path,
    as_json: bool,
    subject: Subject,
) -> None:
    """For each input, write a map, a proof if one fits the time limit, and the reasons for both choices."""
    from proofmap.cli import explain_output as maps
    from proofmap.cli.options.samples_and_balls import graphs, read_cases
    from proofmap.explainers.auto import explain as chosen
    from proofmap.text.wording import plural

    groups = None if scoring.groups is None else o.groups_of(scoring.groups)
    model, cases = read_cases(subject, ball, default="auto", limit=limit)
    target = o.class_of(scoring.target, model.classes)
    networks = graphs(cases, model)
    o.make_folder(out)
    records = []
    for case, stem in zip(cases, maps.stems([case.name for case in cases]), strict=True):
        domain, network = case.ball.domain, networks[case.shape]
        found = chosen(network, case.x, target=target, groups=groups, domain=domain, seconds=within)
        entries = []
        for explanation, name in ((found.map, stem), (found.proof, f"{stem}.proof")):
            if explanation is None:
                continue
            whole = replace(explanation, origin=maps.origin(case, model))
            file, picture = out / f"{name}.proofmap", out / f"{name}.map.png"
            whole.save(file)
            whole.plot().savefig(picture)
            entries.append((whole, maps.record(case, whole, model, file, picture)))
        proof = entries[1][1] if len(entries) > 1 else None
        records.append({**entries[0][1], "said": list(found.said), "proof": proof})
        if not as_json:
            typer.echo("\n  ".join([f"{case.name}: {maps.decided(case, found.map, model)}", *found.said]))
    if as_json:
        typer.echo(json.dumps({"model": model.name, "method": "chosen", "inputs": records}, indent=1))
    else:
        typer.echo(f"wrote {plural(len(cases), 'map')} to {out}")
