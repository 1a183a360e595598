"""Record the results of Quantus and Xplique for fixed attributions; tests compare the presets of our metrics with them.

    python scripts/metrics_env.py

The first call makes the environment `.venv-metrics` with Quantus, Xplique, TensorFlow for the CPU, the pinned torch and
this package. Both libraries then evaluate packaged digits with the packaged model, and the script writes
`tests/metrics/recorded.json`. Random subsets are recorded as well.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import venv
import warnings
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # torch is only in the new environment
    from torch import Tensor, nn

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ROOT / ".venv-metrics"
ENVIRONMENT_PYTHON = ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin") / "python"
INSTALLED_MARK = ENVIRONMENT / "installed"
RECORD_FILE = ROOT / "tests" / "metrics" / "recorded.json"
SAMPLE_COUNT = 3
SUBSET_COUNT = 20
SUBSET_SIZE = 40
PERCENTAGES = list(range(10, 100, 10))
NEEDED = [
    "numpy<2.4",  # Quantus calls numpy.trapz
    "tensorflow-cpu==2.21.*",
    "tensorflow-probability",
    "einops",
    "scikit-learn",
    "scikit-image",
    "matplotlib",
    "scipy",
    "opencv-python-headless",
    "deprecated",
]


def attributions(x: Tensor) -> Tensor:
    """Return attributions of both signs, all different within a digit, and slightly related to the digit."""
    import torch

    index = torch.arange(x.numel(), dtype=torch.float64).view_as(x)
    return (torch.sin(1.7 * index + 0.1) + x).to(x.dtype)


def squares(x: Tensor) -> Tensor:
    """Return attributions of an explainer whose samples are moved."""
    return x**2


def moved(x: Tensor) -> Tensor:
    """Return moved points, (N, SUBSET_COUNT, *shape), within 0.2 of x."""
    import torch

    wave = torch.sin(torch.arange(SUBSET_COUNT * x[0].numel(), dtype=torch.float64))
    return x[:, None] + 0.2 * wave.view(SUBSET_COUNT, *x.shape[1:]).to(x.dtype)


def main(arguments: list[str] | None = None) -> int:
    """Make the environment if it is missing, then record in it."""
    parser = argparse.ArgumentParser(description="Record what Quantus and Xplique say of fixed attributions.")
    parser.add_argument("--record", action="store_true", help="record, in an environment that has both")
    if parser.parse_args(arguments).record:
        record()
        return 0
    if not INSTALLED_MARK.exists():
        install()
    single = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.run(
        [str(ENVIRONMENT_PYTHON), str(Path(__file__)), "--record"], cwd=ROOT, env=single, check=False
    ).returncode


def install() -> None:
    """Install torch first and alone. Packages that ask for TensorFlow with GPU libraries come last, without these."""
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    (ENVIRONMENT / ".gitignore").write_text("*\n", encoding="utf-8")
    pip = [str(ENVIRONMENT_PYTHON), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    for wanted in (
        ["-c", "constraints.txt", "torch", "setuptools"],
        ["--no-build-isolation", "-e", "."],
        ["quantus", "torch==2.13.0", *NEEDED],
        ["--no-deps", "xplique", "tf-keras==2.21.*"],
    ):
        subprocess.run([*pip, *wanted], cwd=ROOT, check=True)
    INSTALLED_MARK.touch()


def record() -> None:
    """Write the record: versions, and the values of each library."""
    import proofmap as pm

    warnings.simplefilter("ignore")  # for instance about black pixels that are painted black
    images, labels = pm.data.digits()
    x, model = images[:SAMPLE_COUNT], pm.zoo.mnist_mlp()
    found = {
        "about": "made by scripts/metrics_env.py: the first digits, mnist_mlp, scripts.metrics_env.attributions",
        "versions": {name: version(name) for name in ("quantus", "xplique", "tensorflow-cpu", "torch", "numpy")},
        "quantus": by_quantus(model, x, labels[:SAMPLE_COUNT]),
        "xplique": by_xplique(model, x, labels[:SAMPLE_COUNT]),
    }
    RECORD_FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {RECORD_FILE.relative_to(ROOT)}: {found['versions']}")


def by_quantus(model: nn.Module, x: Tensor, labels: Tensor) -> dict[str, Any]:
    """Record PixelFlipping with its area, FaithfulnessCorrelation with its subsets, and MaxSensitivity at given points.

    Also Sparseness, and ROAD without its noise: the share of correct samples for each share of removed pixels.
    """
    import numpy as np
    import quantus
    from quantus.functions.perturb_func import batch_baseline_replacement_by_indices
    from quantus.helpers.utils import calculate_auc

    common: dict[str, Any] = {"disable_warnings": True, "display_progressbar": False}
    call = {"model": model, "x_batch": x.numpy(), "y_batch": labels.numpy(), "a_batch": attributions(x).numpy()}
    areas = {}
    for features in (1, 28):
        flipping = quantus.PixelFlipping(features_in_step=features, **common)
        areas[str(784 // features)] = [calculate_auc(np.asarray(curve)).item() for curve in flipping(**call)]
    seen: list[Any] = []

    def keep(arr: Any, indices: Any, **kwargs: Any) -> Any:
        seen.append(np.asarray(indices).reshape(-1, SUBSET_SIZE).tolist())
        return batch_baseline_replacement_by_indices(arr=arr, indices=indices, **kwargs)

    faithfulness = quantus.FaithfulnessCorrelation(
        nr_runs=SUBSET_COUNT, subset_size=SUBSET_SIZE, perturb_func=keep, return_aggregate=False, **common
    )
    np.random.seed(0)  # noqa: NPY002  Quantus draws from numpy's global generator
    values = [float(value) for value in faithfulness(**call)]
    road = quantus.ROAD(percentages=PERCENTAGES, noise=0.0, **common)(**call)
    sparse = quantus.Sparseness(**common)(**call)
    points = iter(moved(x).transpose(0, 1))
    sensitivity = quantus.MaxSensitivity(
        nr_samples=SUBSET_COUNT, perturb_func=lambda arr, **kwargs: next(points).numpy().reshape(arr.shape), **common
    )
    call |= {"a_batch": squares(x).numpy(), "explain_func": lambda inputs, **kwargs: squares(inputs)}
    return {
        "pixel_flipping": areas,
        "faithfulness_correlation": values,
        "max_sensitivity": [float(value) for value in sensitivity(**call)],
        "sparseness": [float(value) for value in sparse],
        "road": [float(road[share]) for share in PERCENTAGES],
        "subsets": [" ".join(map(str, row)) for row in np.asarray(seen).reshape(-1, SUBSET_SIZE).tolist()],
    }


def by_xplique(model: nn.Module, x: Tensor, labels: Tensor) -> dict[str, Any]:
    """Record Deletion, Insertion and MuFidelity, one digit at a time because they return means, with their masks.

    Also AverageStability at given points, with the smallest, mean and largest noise that it would have drawn.
    """
    import numpy as np
    import torch

    tf, metrics = import_module("tensorflow"), import_module("xplique.metrics")

    def score(function: Any, inputs: Any, targets: Any) -> Any:
        points = torch.from_numpy(np.array(inputs, dtype=np.float32)).movedim(-1, 1)
        with torch.no_grad():
            logits = function(points).numpy()
        return tf.constant((logits * np.asarray(targets)).sum(1), dtype=tf.float32)

    def explainer(inputs: Any, targets: Any) -> Any:
        return squares(torch.from_numpy(np.array(inputs))).numpy()

    found: dict[str, Any] = {name: [] for name in ("deletion", "insertion", "mu_fidelity", "masks", "stability")}
    noise = (moved(x) - x[:, None])[0].movedim(1, -1).numpy()
    maps = attributions(x).movedim(1, -1).numpy()
    for image, label, phi in zip(x.movedim(1, -1).numpy(), labels.tolist(), maps, strict=True):
        given = {"inputs": image[None], "targets": np.eye(10, dtype=np.float32)[[label]], "operator": score}
        found["deletion"].append(float(metrics.Deletion(model, **given)(phi[None])))
        found["insertion"].append(float(metrics.Insertion(model, **given)(phi[None])))
        tf.random.set_seed(label)
        fidelity = metrics.MuFidelity(model, **given, nb_samples=SUBSET_COUNT)
        inner = fidelity._perturb_samples

        def keep(*args: Any, inner: Any = inner) -> Any:
            points, masks = inner(*args)
            bits = np.packbits(masks.numpy().reshape(-1, 784) == 0, axis=1)
            found["masks"].append([row.tobytes().hex() for row in bits])
            return points, masks

        fidelity._perturb_samples = keep
        found["mu_fidelity"].append(float(fidelity(phi[None])))
        stability = metrics.AverageStability(model, image[None], given["targets"], radius=0.2, nb_samples=SUBSET_COUNT)
        drawn = stability.noisy_masks.numpy()
        found["noise"] = [float(end) for end in (drawn.min(), drawn.mean(), drawn.max())]
        stability.noisy_masks = tf.constant(noise)
        found["stability"].append(stability.evaluate(explainer))
    return found


if __name__ == "__main__":
    sys.exit(main())
