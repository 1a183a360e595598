"""Try an explainer inside Quantus, in an environment of its own.

    python scripts/quantus_env.py

makes `.venv-quantus` the first time, with Quantus, Captum, the pinned torch and this package, runs the tests of
`explain_func` there, and prints what a few of Quantus' metrics say of EVA and of Saliency on packaged digits.
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
FOLDER = ROOT / ".venv-quantus"
PYTHON = FOLDER / ("Scripts" if os.name == "nt" else "bin") / "python"
INSTALLED = FOLDER / "installed"
SAMPLES = 8
EPS = 0.01


def main(arguments: list[str] | None = None) -> int:
    """Make the environment if there is none, then run the tests and the metrics in it."""
    parser = argparse.ArgumentParser(description="Try an explainer inside Quantus.")
    parser.add_argument("--measure", action="store_true", help="print the figures, in an environment that has Quantus")
    if parser.parse_args(arguments).measure:
        measure()
        return 0
    if not INSTALLED.exists():
        install()
    single = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    for command in (["-m", "pytest", "-q", "tests/explain/test_quantus.py"], [str(Path(__file__)), "--measure"]):
        if code := subprocess.run([str(PYTHON), *command], cwd=ROOT, env=single, check=False).returncode:
            return code
    return 0


def install() -> None:
    """Install torch first and alone, so that its exact version is in place before the rest is resolved."""
    venv.create(FOLDER, with_pip=True, clear=True)
    (FOLDER / ".gitignore").write_text("*\n", encoding="utf-8")
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "-c", "constraints.txt"]
    for wanted in (
        ["torch", "setuptools"],
        ["--no-build-isolation", "-e", ".", "quantus", "pytest", "hypothesis"],
    ):
        subprocess.run([*pip, *wanted], cwd=ROOT, check=True)
    INSTALLED.touch()


def measure() -> None:
    """Print a table: metric x method, means over a few digits (and over the curve, for PixelFlipping)."""
    import numpy as np
    import quantus

    import proofmap as pm
    from proofmap.explain import EVA
    from proofmap.explain.quantus import explain_func

    images, labels = pm.data.digits()
    x, y = images[:SAMPLES].numpy(), labels[:SAMPLES].numpy()
    model = pm.zoo.mnist_mlp()
    inside = explain_func(EVA(model, pm.Ball(EPS, domain=(0.0, 1.0)), progress=False))
    # MaxSensitivity adds noise: x + noise leaves [0, 1]
    anywhere = explain_func(EVA(model, pm.Ball(EPS), progress=False))
    common: dict[str, Any] = {"disable_warnings": True, "display_progressbar": False}
    metrics: dict[str, Any] = {
        "FaithfulnessCorrelation": quantus.FaithfulnessCorrelation(
            nr_runs=100, subset_size=157, perturb_baseline="uniform", **common
        ),
        "PixelFlipping": quantus.PixelFlipping(features_in_step=28, perturb_baseline="black", **common),
        "MaxSensitivity": quantus.MaxSensitivity(nr_samples=10, lower_bound=0.02, **common),
        "MPRT": quantus.MPRT(return_average_correlation=True, skip_layers=False, **common),
    }
    warnings.simplefilter("ignore")  # black pixels that are painted black, for one
    names = ("proofmap", "quantus", "torch", "captum", "numpy", "pandas", "scikit-image")
    print(f"Python {sys.version.split()[0]}, " + ", ".join(f"{name} {version(name)}" for name in names))
    print(f"{SAMPLES} packaged digits, mnist_mlp, eps = {EPS}")
    print(f"{'':24}{'EVA':>10}{'Saliency':>10}")
    for name, metric in metrics.items():
        eva = anywhere if name == "MaxSensitivity" else inside
        row = []
        for function, kwargs in ((eva, {}), (quantus.explain, {"method": "Saliency"})):
            np.random.seed(0)  # noqa: NPY002  Quantus draws from numpy's global generator
            scores = metric(
                model=model, x_batch=x, y_batch=y, explain_func=function, explain_func_kwargs=kwargs, channel_first=True
            )
            row.append(float(np.mean(np.asarray(scores, dtype=float))))
        print(f"{name:24}{row[0]:10.3f}{row[1]:10.3f}")


if __name__ == "__main__":
    sys.exit(main())
