"""Keras 3 on torch: its models are torch modules, and are read directly. Skipped without Keras (the extra `keras`)."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import proofmap as pm

os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras")
if keras.backend.backend() != "torch":
    pytest.skip(f"Keras runs on {keras.backend.backend()}, not on torch", allow_module_level=True)


def dense() -> Any:
    layers = keras.layers
    scaled = layers.Normalization(mean=[1.0] * 6, variance=[2.0] * 6)
    inner = [layers.Dense(8, activation="relu"), layers.Dropout(0.2), layers.Dense(8, activation="tanh")]
    return keras.Sequential([layers.Input((6,)), scaled, *inner, layers.Dense(3, activation="softmax")])


def convolutional() -> Any:
    layers = keras.layers
    first = [layers.Conv2D(4, 3, activation="relu"), layers.MaxPooling2D(), layers.BatchNormalization()]
    return keras.Sequential([layers.Input((12, 12, 2)), *first, layers.Flatten(), layers.Dense(3)])


def functional() -> Any:
    layers = keras.layers
    start = keras.Input((6,))
    once = layers.Dense(8, activation="relu")(start)
    both = layers.Add()([once, layers.Dense(8)(once)])
    return keras.Model(start, layers.Dense(3)(layers.LeakyReLU()(both)))


def series() -> Any:
    layers = keras.layers
    first = [layers.Conv1D(4, 3, padding="same", activation="relu"), layers.GlobalAveragePooling1D()]
    return keras.Sequential([layers.Input((20, 2)), *first, layers.Dense(1, activation="sigmoid")])


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras's way to read tensors
@pytest.mark.parametrize("make", [dense, convolutional, functional, series])
def test_a_keras_model_is_read_directly(make: Callable[[], Any]) -> None:
    """The graph gives Keras's predictions, and no point of the ball exceeds its bound."""
    keras.utils.set_random_seed(0)
    model = make()
    x = np.random.default_rng(0).normal(size=(3, *model.input_shape[1:])).astype(np.float32)
    samples = torch.as_tensor(x)
    graph = pm.trace(model, samples)
    predicted = graph.as_model(graph(samples).flatten(1)).detach().numpy()
    assert np.abs(predicted.reshape(3, -1) - model.predict(x, verbose=0)).max() < 1e-5
    ball = pm.Ball(0.05)
    over = pm.overlap(model, x, ball)
    for delta in ball.at(samples).sample(200, torch.Generator().manual_seed(0)):
        logits = graph(samples + delta).detach()
        own = logits.gather(1, over.target[:, None])
        rivals = logits.scatter(1, over.target[:, None], -torch.inf).amax(1, keepdim=True)
        assert bool(((rivals - own)[:, 0] <= over.full + 1e-5).all())
    assert pm.EVA(model, ball).explain(x).attributions.shape == x.shape
