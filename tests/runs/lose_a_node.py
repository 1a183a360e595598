"""A run on two nodes of a Ray cluster, of which one is lost: python -m tests.runs.lose_a_node FOLDER.

Both workers meet in their first chunk. Then the second node is killed, and no other comes in its place.
"""

import logging
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import ray
from ray.cluster_utils import Cluster
from torch import Tensor

from proofmap.runs import Ray, run
from proofmap.runs.worker import ChunkTask, ExplainedChunk, Worker
from tests.runs.setting import Digits, digits_model, job

_IMPATIENT = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 200, "health_check_failure_threshold": 3}
_STORE = {"object_store_memory": 100 * 2**20}


def main(folder: Path) -> None:
    """Leave the results in FOLDER/ray, and a file FOLDER/lost when the node is."""
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": _IMPATIENT, **_STORE}
    nodes: Any = Cluster(initialize_head=True, head_node_args=head)
    second = nodes.add_node(num_cpus=1, **_STORE)
    doomed, lost = folder / f"at-{second.node_id}", folder / "lost"
    ray.init(nodes.address, log_to_driver=False, logging_level=logging.ERROR)

    class Waiting(Worker):  # classes inside a function are sent to the workers by value
        def explain(self, work: ChunkTask) -> ExplainedChunk:
            here = folder / f"at-{ray.get_runtime_context().get_node_id()}"
            here.touch()
            while not (lost if here == doomed else doomed).exists():
                time.sleep(0.02)
            return super().explain(work)

    class Losing(Digits):
        def read(self, index: int) -> Tensor:
            if index == self.count - 1 and not lost.exists():
                while not doomed.exists():
                    time.sleep(0.02)
                nodes.remove_node(second, allow_graceful=False)
                lost.touch()
            return super().read(index)

    with patch("proofmap.runs.cluster.Worker", Waiting):
        run(Losing(bad={5: None}), digits_model(), job(), folder / "ray", progress=False, engine=Ray(workers=2))
    ray.shutdown()
    nodes.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
