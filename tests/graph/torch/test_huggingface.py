"""Models of Hugging Face and timm, small and with random weights: they are passed as they are, and bounds hold."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import proofmap as pm
from proofmap.graph.opaque import opaque_node
from tests.bounds.attack import climbed_points

pytestmark = pytest.mark.slow
PICTURES = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
BALL_RADIUS = 1e-3
BALL = pm.Ball(BALL_RADIUS)
ROWS = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0)) / 2
SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "num_labels": 4}
PATCHES = {"image_size": 16, "patch_size": 8}
TEXT = {"vocab_size": 20, "max_position_embeddings": 8, "pad_token_id": 0}
STAGES = {"hidden_sizes": [4, 8], "depths": [1, 1], "num_labels": 4}


LANGUAGE_MODELS: dict[str, dict[str, Any]] = {
    "Bert": {},
    "Roberta": {},
    "Electra": {"embedding_size": 8},
    "Albert": {"embedding_size": 8},
    "DebertaV2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "Llama": {"num_key_value_heads": 2},
}


@dataclass(frozen=True)
class Model:
    """One architecture: the beginning of its class names, the suffix of the class, and its settings."""

    name: str
    task: str
    settings: dict[str, Any]
    x: Tensor = PICTURES
    keyword: str = "pixel_values"
    eps: float = BALL_RADIUS
    rigorous: bool | None = None

    def build(self) -> Any:
        transformers = pytest.importorskip("transformers")
        torch.manual_seed(0)
        config = getattr(transformers, f"{self.name}Config")(**self.settings)
        return getattr(transformers, f"{self.name}For{self.task}")(config).eval()


MODELS = {
    model.name: model
    for model in (
        *(Model(name, "ImageClassification", {**SMALL, **PATCHES}) for name in ("ViT", "DeiT", "Beit")),
        Model("Dinov2", "ImageClassification", {**SMALL, **PATCHES, "mlp_ratio": 2}),
        Model("ResNet", "ImageClassification", {**STAGES, "embedding_size": 4, "layer_type": "basic"}),
        Model("RegNet", "ImageClassification", {**STAGES, "embedding_size": 4, "groups_width": 4}),
        Model("ConvNext", "ImageClassification", {**STAGES, "num_stages": 2}),
        # its GRN layers divide by a mean of norms, which is not proven to be positive if rounding is covered
        Model("ConvNextV2", "ImageClassification", {**STAGES, "num_stages": 2}, rigorous=False),
        Model(
            "Swin",
            "ImageClassification",
            {
                "image_size": 16,
                "patch_size": 4,
                "embed_dim": 4,
                "depths": [2],
                "num_heads": [2],
                "window_size": 2,
                "num_labels": 4,
            },
        ),
        Model(
            "Swinv2",
            "ImageClassification",
            {
                "image_size": 16,
                "patch_size": 4,
                "embed_dim": 4,
                "depths": [1],
                "num_heads": [2],
                "window_size": 2,
                "num_labels": 4,
            },
            eps=1e-5,  # it divides by the norms of queries and keys, which are small here
        ),
        Model(
            "Levit",
            "ImageClassification",
            {
                "image_size": 32,
                "hidden_sizes": [8, 8, 8],
                "num_attention_heads": [2, 2, 2],
                "depths": [1, 1, 1],
                "key_dim": [2, 2, 2],
                "num_labels": 4,
            },
            torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1)),
        ),
        *(
            Model(name, "SequenceClassification", {**SMALL, **TEXT, **more}, ROWS, "inputs_embeds")
            for name, more in LANGUAGE_MODELS.items()
        ),
        Model(
            "DistilBert",
            "SequenceClassification",
            {**TEXT, "dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 16, "num_labels": 4},
            ROWS,
            "inputs_embeds",
        ),
        Model(
            "GPT2",
            "SequenceClassification",
            {**TEXT, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 8, "num_labels": 4},
            ROWS,
            "inputs_embeds",
        ),
    )
}


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading needs no network: any try would raise an error."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.mark.parametrize("case", MODELS.values(), ids=MODELS)
def test_bounds_of_a_model_hold(case: Model) -> None:
    """Bounds contain what attacks find in the user's own module; radius 0 gives its logits."""
    model, x = case.build(), case.x
    graph = pm.trace(model, x)
    assert opaque_node(graph) is None
    with torch.no_grad():
        logits = model(**{case.keyword: x}).logits
    assert torch.allclose(graph(x), logits, atol=1e-5)
    margin = (logits - logits.max(1, keepdim=True).values).topk(2).values[:, 1]
    point = pm.overlap(model, x, pm.Ball(0.0), bounds=pm.bounds.IBP(), rigorous=False)
    assert torch.allclose(point.full, margin, atol=1e-4)
    reached = _attacked(graph, lambda points: model(**{case.keyword: points}).logits, x, case.eps)
    found = pm.overlap(graph, x, pm.Ball(case.eps), bounds=pm.bounds.CrownIBP(), rigorous=case.rigorous)
    assert found.full.isfinite().all()
    assert (reached <= found.full + 1e-5).all()
    assert (reached > found.nominal).all()


def _attacked(graph: pm.Graph, model: Callable[[Tensor], Tensor], x: Tensor, eps: float = BALL_RADIUS) -> Tensor:
    """Return the largest margin of the user's module that an attack reaches in the ball."""
    points = x + climbed_points(graph, pm.Ball(eps).at(x), 6)
    with torch.no_grad():
        logits = torch.stack([model(part) for part in points])
        target = model(x).argmax(1).expand(len(points), -1)[..., None]
    return (logits - logits.gather(2, target)).scatter(2, target, -torch.inf).amax((0, 2))


def test_a_whole_explanation() -> None:
    case = MODELS["ViT"]
    found = pm.EVA(case.build(), pm.Ball(1e-4), groups=pm.groups.grid(2), bounds=pm.bounds.IBP()).explain(case.x)
    assert found.scores.shape == (2, 4)


def test_models_without_a_head_are_refused_with_advice_that_works() -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.ViTModel(transformers.ViTConfig(**SMALL, **PATCHES)).eval()
    with pytest.raises(pm.ModelError, match=r"'last_hidden_state' .*, 'pooler_output' .*model\(x\)\['last_hid"):
        pm.trace(model, PICTURES)


def test_tokens_are_explained_through_their_rows() -> None:
    model = MODELS["Bert"].build()
    tokens = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
    with pytest.raises(pm.InputError, match=r"get_input_embeddings\(\)\(x\)\)"):
        pm.EVA(model, pm.Ball(1e-3)).explain(tokens)
    found = pm.EVA(model, pm.Ball(1e-3), bounds=pm.bounds.IBP()).explain(model.get_input_embeddings()(tokens))
    assert torch.equal(found.predicted, model(tokens).logits.argmax(1))


def test_models_that_mix_samples_have_no_bounds() -> None:
    """TimeSformer reads the class token of other frames: this part runs as it is, and the message says so."""
    transformers = pytest.importorskip("transformers")
    config = transformers.TimesformerConfig(**SMALL, **PATCHES, num_frames=2)
    model, x = transformers.TimesformerForVideoClassification(config).eval(), torch.rand(2, 2, 3, 16, 16)
    with pytest.raises(pm.UnsupportedError, match=r"moves the samples off dimension 0.*EmpiricalEVA"):
        pm.EVA(model, pm.Ball(1e-3)).explain(x)
    assert pm.EmpiricalEVA(model, pm.Ball(1e-3)).explain(x).guarantee == "sampled"


def test_masks_are_constants() -> None:
    """Padding that the mask hides has no influence: its scores are zero, and bounds hold for the masked module."""
    model, mask = MODELS["Bert"].build(), torch.tensor([[1, 1, 1, 0]]).expand(2, -1)
    call = {"inputs_embeds": ROWS, "attention_mask": mask}
    groups = torch.arange(4)[:, None].expand(4, 8)
    found = pm.EVA(model, (BALL, None), groups=(groups, None), bounds=pm.bounds.CrownIBP()).explain(call)
    assert found.input_roles == {"inputs_embeds": "moves", "attention_mask": "constant"}
    assert torch.equal(found.predicted, model(**call).logits.argmax(1))
    assert float(found.inputs[0].scores[:, 3].abs().max()) <= 1e-5 < float(found.scores.max())
    reached = _attacked(pm.trace(model, ROWS), lambda x: model(inputs_embeds=x, attention_mask=mask).logits, ROWS)
    assert (reached <= found.overlap.full + 1e-5).all()


ENCODER_DECODER = {"T5": {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}}
BART = {f"{side}_{what}": size for side in ("encoder", "decoder") for what, size in (("layers", 1), ("ffn_dim", 8))}
BART_HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
SEGMENTED = {
    "depths": [1, 1, 1, 1],
    "sr_ratios": [2, 1, 1, 1],
    "hidden_sizes": [4, 4, 8, 8],
    "num_attention_heads": [1, 1, 2, 2],
    "mlp_ratios": [1, 1, 1, 1],
    "patch_sizes": [3, 3, 3, 3],
    "strides": [2, 2, 2, 1],
    "decoder_hidden_size": 8,
}
DECODED = {"decoder_input_ids": torch.tensor([[0, 5, 7]]).expand(2, -1)}  # whole numbers, the same for all samples

# Outputs of other shapes: one entry is explained. Beside the output, the inputs by keyword that stay fixed.
OTHER_OUTPUTS: dict[str, tuple[Model, tuple[int, ...], dict[str, Tensor]]] = {
    "tokens of BERT": (Model("Bert", "TokenClassification", {**SMALL, **TEXT}, ROWS, "inputs_embeds"), (1, 2), {}),
    "words of BERT": (Model("Bert", "MaskedLM", {**SMALL, **TEXT}, ROWS, "inputs_embeds"), (3, 11), {}),
    "tokens of T5": (
        Model("T5", "TokenClassification", {**ENCODER_DECODER["T5"], "num_labels": 3}, ROWS, "inputs_embeds", 1e-4),
        (1, 2),
        {},
    ),
    "words of T5": (
        Model("T5", "ConditionalGeneration", {**ENCODER_DECODER["T5"], "vocab_size": 20}, ROWS, "inputs_embeds", 1e-4),
        (2, 7),
        DECODED,
    ),
    "words of BART": (
        Model("Bart", "ConditionalGeneration", {"d_model": 8, **BART, **BART_HEADS, **TEXT}, ROWS, "inputs_embeds"),
        (2, 7),
        DECODED,
    ),
    "words of GPT-2": (
        Model("GPT2", "TokenClassification", {"n_embd": 8, "n_layer": 1, "n_head": 2}, ROWS, "inputs_embeds"),
        (3, 1),
        {},
    ),
    "pixels": (Model("Segformer", "SemanticSegmentation", {**SEGMENTED, "num_labels": 3}), (1, 2, 2), {}),
    "boxes": (
        Model("Yolos", "ObjectDetection", {**SMALL, **PATCHES, "image_size": [16, 16], "num_detection_tokens": 3}),
        (2, 1),
        {},
    ),
}


@pytest.mark.parametrize(("case", "index", "fixed"), OTHER_OUTPUTS.values(), ids=OTHER_OUTPUTS)
def test_outputs_of_other_shapes(case: Model, index: tuple[int, ...], fixed: dict[str, Tensor]) -> None:
    """The change of one entry: radius 0 changes nothing, and no attacked point changes it by more than the bound."""
    model, call = case.build(), {case.keyword: case.x, **fixed}

    def entry(points: Tensor) -> Tensor:
        logits = model(**{case.keyword: points, **fixed}).logits
        return torch.stack([logit[index] for logit in logits])

    method = pm.bounds.CrownIBP() if case.x is PICTURES else pm.bounds.Backward()
    balls = (pm.Ball(case.eps), *(None,) * len(fixed))
    for direction, sign in (("up", 1), ("down", -1)):
        objective = pm.objectives.Output(index, direction)  # type: ignore[arg-type]
        found = pm.overlap(model, call, balls, objective=objective, bounds=method)
        assert found.value is not None
        with torch.no_grad():
            start = entry(case.x)
        assert torch.allclose(found.value, start, atol=1e-5)
        x = case.x.clone().requires_grad_()
        steps = torch.autograd.grad(entry(x).sum(), x)[0].sign()
        with torch.no_grad():
            change = sign * (entry(case.x + sign * case.eps * steps) - start)
        assert (change > 0).all()
        assert (change <= found.full + 1e-6).all()
        assert (found.full < 1).all()


def test_an_output_of_another_shape_names_the_objective() -> None:
    """The advice works as it is written."""
    model = OTHER_OUTPUTS["tokens of BERT"][0].build()
    with pytest.raises(pm.InputError, match=r"output has shape \(N, 4, 4\), which is no list of classes") as caught:
        pm.EVA(model, BALL).explain(ROWS)
    advice = str(caught.value).rpartition("as in ")[2]
    assert eval(advice, {"pm": pm, "model": model}).explain(ROWS).guarantee == "certified"


def test_a_head_that_takes_no_embeddings() -> None:
    """T5's classifier looks for the end token in its ids. The error says so, and a wrapped head works."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.T5Config(**ENCODER_DECODER["T5"], vocab_size=20, num_labels=3, num_decoder_layers=1)
    model = transformers.T5ForSequenceClassification(config).eval()
    with pytest.raises(
        pm.ModelError, match=r"NotImplementedError: Passing input embeddings.*wrap it in a module whose"
    ):
        pm.EVA(model, (BALL, None)).explain({"inputs_embeds": ROWS, **DECODED})

    class Head(torch.nn.Module):
        """The encoder, the decoder, and the head at the last token."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, rows: Tensor, decoded: Tensor) -> Tensor:
            states = self.model.transformer(inputs_embeds=rows, decoder_input_ids=decoded).last_hidden_state
            logits: Tensor = self.model.classification_head(states[:, -1])
            return logits

    decoded = DECODED["decoder_input_ids"]
    found = pm.EVA(Head().eval(), (BALL, None)).explain((ROWS, decoded))
    assert torch.equal(found.predicted, Head()(ROWS, decoded).argmax(1))
    assert (found.overlap.full.isfinite()).all()


def _timm() -> Any:
    try:
        import timm
    except (ImportError, RuntimeError) as error:  # torchvision may not fit to torch
        pytest.skip(f"timm cannot be imported: {error}")
    return timm


TIMM: dict[str, Callable[[Any], Any]] = {
    "vit": lambda timm: timm.create_model(
        "vit_tiny_patch16_224", img_size=32, embed_dim=8, depth=1, num_heads=2, num_classes=4
    ),
    "convnext": lambda timm: timm.create_model("convnext_atto", depths=(1, 1, 1, 1), dims=(4, 4, 8, 8), num_classes=4),
}


@pytest.mark.parametrize("build", TIMM.values(), ids=TIMM)
def test_models_of_timm(build: Callable[[Any], Any]) -> None:
    torch.manual_seed(0)
    model, x = build(_timm()).eval(), torch.rand(2, 3, 32, 32)
    found = pm.overlap(model, x, BALL, bounds=pm.bounds.IBP())
    assert (_attacked(pm.trace(model, x), model, x) <= found.full + 1e-5).all()
