"""Try explainers inside Quantus, in a separate environment.

    python scripts/quantus_env.py

The first call makes the environment `.venv-quantus` with Quantus, Captum, the pinned torch and this package. The script
runs the tests of `explain_func` there. It then prints some of Quantus' metrics of EVA and Saliency on packaged digits,
and our own metrics of the same maps where both libraries have the metric.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ROOT / ".venv-quantus"
ENVIRONMENT_PYTHON = ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin") / "python"
INSTALLED_MARK = ENVIRONMENT / "installed"
SAMPLE_COUNT = 8
EPS = 0.01


def main(arguments: list[str] | None = None) -> int:
    """Make the environment if it is missing, then run the tests and the metrics in it."""
    parser = argparse.ArgumentParser(description="Try an explainer inside Quantus.")
    parser.add_argument("--measure", action="store_true", help="print the figures, in an environment that has Quantus")
    if parser.parse_args(arguments).measure:
        measure()
        return 0
    if not INSTALLED_MARK.exists():
        install()
    single = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    for command in (
        ["-m", "pytest", "-q", "tests/explainers/attribution/test_quantus.py"],
        [str(Path(__file__)), "--measure"],
    ):
        if code := subprocess.run([str(ENVIRONMENT_PYTHON), *command], cwd=ROOT, env=single, check=False).returncode:
            return code
    return 0


def install() -> None:
    """Install torch first and alone, so that its exact version is installed before pip resolves the rest."""
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    (ENVIRONMENT / ".gitignore").write_text("*\n", encoding="utf-8")
    pip = [
        str(ENVIRONMENT_PYTHON),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--quiet",
        "-c",
        "constraints.txt",
    ]
    for wanted in (
        ["torch", "setuptools"],
        ["--no-build-isolation", "-e", ".", "quantus", "pytest", "hypothesis"],
    ):
        subprocess.run([*pip, *wanted], cwd=ROOT, check=True)
    INSTALLED_MARK.touch()


def measure() -> None:
    """Print a table of metrics and methods: means over a few digits, and for PixelFlipping over the curve."""
    import numpy as np
    import quantus

    import proofmap as pm
    from proofmap.explainers import EVA
    from proofmap.explainers.attribution.quantus import explain_func

    images, labels = pm.data.digits()
    x, y = images[:SAMPLE_COUNT].numpy(), labels[:SAMPLE_COUNT].numpy()
    model = pm.zoo.mnist_mlp()
    inside = explain_func(EVA(model, pm.Ball(EPS, domain=(0.0, 1.0)), progress=False))
    # MaxSensitivity adds noise, and x + noise may leave [0, 1]
    anywhere = explain_func(EVA(model, pm.Ball(EPS), progress=False))
    common: dict[str, Any] = {"disable_warnings": True, "display_progressbar": False}
    metrics: dict[str, Any] = {
        "FaithfulnessCorrelation": quantus.FaithfulnessCorrelation(
            nr_runs=100, subset_size=157, perturb_baseline="uniform", **common
        ),
        "PixelFlipping": quantus.PixelFlipping(features_in_step=28, perturb_baseline="black", **common),
        "MaxSensitivity": quantus.MaxSensitivity(nr_samples=10, lower_bound=0.02, **common),
        "Sparseness": quantus.Sparseness(**common),
        "ROAD": quantus.ROAD(percentages=list(range(10, 100, 10)), **common),
        "MPRT": quantus.MPRT(return_average_correlation=True, skip_layers=False, **common),
    }
    warnings.simplefilter("ignore")  # for instance about black pixels that are painted black
    names = ("proofmap", "quantus", "torch", "captum", "numpy", "pandas", "scikit-image")
    print(f"Python {sys.version.split()[0]}, " + ", ".join(f"{name} {version(name)}" for name in names))
    print(f"{SAMPLE_COUNT} packaged digits, mnist_mlp, eps = {EPS}")
    print(f"{'Quantus':24}{'EVA':>10}{'Saliency':>10}")
    for name, metric in metrics.items():
        eva = anywhere if name == "MaxSensitivity" else inside
        row = []
        for function, kwargs in ((eva, {}), (quantus.explain, {"method": "Saliency"})):
            np.random.seed(0)  # noqa: NPY002  Quantus draws from numpy's global generator
            scores = metric(
                model=model, x_batch=x, y_batch=y, explain_func=function, explain_func_kwargs=kwargs, channel_first=True
            )
            values = [*scores.values()] if isinstance(scores, dict) else scores
            row.append(float(np.mean(np.asarray(values, dtype=float))))
        print(f"{name:24}{row[0]:10.3f}{row[1]:10.3f}")
    print("Proofmap, of the same samples and classes")
    for name, row in ours().items():
        print(f"{name:24}{row[0]:10.3f}{row[1]:10.3f}")


def ours() -> dict[str, list[float]]:
    """Return our own values of metrics that Quantus has too: means over the same digits, for EVA and Saliency.

    Sparseness has the same formula. ROAD has the same shares and other random noise; MaxSensitivity has other random
    points. MPRT draws new weights, while Randomisation shuffles the old ones: these two numbers differ on purpose.
    """
    from dataclasses import replace

    import torch

    import proofmap as pm
    from proofmap.explainers import EVA
    from proofmap.explainers.baselines import Saliency
    from proofmap.metrics import ROAD, Randomisation, Sparseness, Stability

    images, labels = pm.data.digits()
    x, y, model = images[:SAMPLE_COUNT], labels[:SAMPLE_COUNT], pm.zoo.mnist_mlp()
    inside, anywhere = (EVA(model, pm.Ball(EPS, domain=d), progress=False) for d in ((0.0, 1.0), None))
    methods: list[Any] = [inside, Saliency(model)]
    maps = [method.attribute(x, y) for method in methods]

    def remade(method: Any) -> Any:
        return lambda network, x, c: replace(method, model=network).attribute(x, c)

    rows = {
        "MaxSensitivity": [Stability(0.02, 10, "quantus")(model, x, y, m.attribute) for m in (anywhere, methods[1])],
        "Sparseness": [Sparseness("quantus")(model, x, y, a) for a in maps],
        "ROAD": [ROAD()(model, x, y, a) for a in maps],
        "Randomisation": [Randomisation("cascade").correlations(model, x, y, remade(m)) for m in methods],
    }
    return {name: [float(torch.as_tensor(value).double().mean()) for value in row] for name, row in rows.items()}


if __name__ == "__main__":
    sys.exit(main())
