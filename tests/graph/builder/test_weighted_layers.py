"""Layers with weights."""

import pytest
import torch

from proofmap.errors import ModelError
from proofmap.graph.builder import weighted_layers
from proofmap.graph.builder.graph_builder import Builder
from proofmap.graph.sliding_windows import SlidingWindow


@pytest.mark.parametrize(("channels", "groups"), [(3, 1), (5, 2)])
def test_a_transposed_convolution_of_other_channels_is_refused(channels: int, groups: int) -> None:
    weight = torch.ones(channels, 2, 3)
    message = rf"conv_transpose \(node 'y'\) gets 5 channels, but its weights are for {channels} in {groups} groups"
    with pytest.raises(ModelError, match=message):
        weighted_layers.conv_transpose(
            Builder((5, 4), 5), "y", "input", weight, None, SlidingWindow.of((3,)), groups, (0,)
        )
