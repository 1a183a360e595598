"""Modules in the style of timm: its blocks, norms, pools and heads, written again in a few lines each.

timm itself is tried in `test_huggingface.py`, where it can be imported.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import proofmap as pm
from proofmap.graph.opaque import opaque_node

pytestmark = pytest.mark.slow

PICTURES = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
DIM, CLASSES = 8, 3


class DropPath(nn.Module):
    """Stochastic depth: drops a residual branch of whole samples while training."""

    def __init__(self, drop_prob: float = 0.1, scale_by_keep: bool = True) -> None:
        super().__init__()
        self.drop_prob, self.scale_by_keep = drop_prob, scale_by_keep

    def forward(self, x: Tensor) -> Tensor:
        if self.drop_prob == 0.0 or not self.training:
            return x
        keep = 1 - self.drop_prob
        drawn = x.new_empty((x.shape[0],) + (1,) * (x.ndim - 1)).bernoulli_(keep)
        if keep > 0.0 and self.scale_by_keep:
            drawn.div_(keep)
        return x * drawn


class LayerNorm2d(nn.LayerNorm):
    """LayerNorm over the channels of (N, C, H, W)."""

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1)
        x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class LayerScale(nn.Module):
    """A factor for each channel, possibly in place."""

    def __init__(self, dim: int, init_values: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace
        self.gamma = nn.Parameter(init_values * torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(self.gamma) if self.inplace else x * self.gamma


class BatchNormAct2d(nn.BatchNorm2d):
    """A batch norm with its activation, which calls the function itself."""

    def __init__(self, channels: int, act_layer: Callable[[], nn.Module] | None = None) -> None:
        super().__init__(channels)
        self.drop = nn.Identity()
        self.act = nn.ReLU(inplace=True) if act_layer is None else act_layer()

    def forward(self, x: Tensor) -> Tensor:
        training = self.training or (self.running_mean is None and self.running_var is None)
        x = F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, training, 0.1, self.eps)
        activated: Tensor = self.act(self.drop(x))
        return activated


class Mlp(nn.Module):
    """Two layers, as linear maps or as 1 x 1 convolutions."""

    def __init__(self, dim: int, hidden: int, act: type[nn.Module] = nn.GELU, use_conv: bool = False) -> None:
        super().__init__()
        layer = partial(nn.Conv2d, kernel_size=1) if use_conv else nn.Linear
        self.fc1, self.act, self.drop1 = layer(dim, hidden), act(), nn.Dropout(0.1)
        self.norm, self.fc2, self.drop2 = nn.Identity(), layer(hidden, dim), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.drop1(self.act(self.fc1(x)))
        y: Tensor = self.drop2(self.fc2(self.norm(x)))
        return y


class Attention(nn.Module):
    """Self-attention with or without torch's fused function, and norms of queries and keys."""

    fused_attn: bool

    def __init__(self, dim: int, num_heads: int = 2, fused: bool = True, qk_norm: bool = True) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.fused_attn = num_heads, dim // num_heads, fused
        self.scale = self.head_dim**-0.5
        self.qkv = nn.Linear(dim, dim * 3, bias=True)
        self.q_norm = nn.LayerNorm(self.head_dim) if qk_norm else nn.Identity()
        self.k_norm = nn.LayerNorm(self.head_dim) if qk_norm else nn.Identity()
        self.attn_drop, self.proj, self.proj_drop = nn.Dropout(0.1), nn.Linear(dim, dim), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        n, tokens, channels = x.shape
        qkv = self.qkv(x).reshape(n, tokens, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        q, k = self.q_norm(q), self.k_norm(k)
        if self.fused_attn:
            x = F.scaled_dot_product_attention(q, k, v, dropout_p=self.attn_drop.p if self.training else 0.0)
        else:
            attn = (q * self.scale) @ k.transpose(-2, -1)
            x = self.attn_drop(attn.softmax(dim=-1)) @ v
        x = x.transpose(1, 2).reshape(n, tokens, channels)
        y: Tensor = self.proj_drop(self.proj(x))
        return y


class Block(nn.Module):
    """A pre-norm transformer block with layer scales and stochastic depth."""

    def __init__(self, dim: int, fused: bool) -> None:
        super().__init__()
        self.norm1, self.attn, self.ls1 = nn.LayerNorm(dim, eps=1e-6), Attention(dim, fused=fused), LayerScale(dim)
        self.norm2, self.mlp, self.ls2 = nn.LayerNorm(dim, eps=1e-6), Mlp(dim, 2 * dim), LayerScale(dim, inplace=True)
        self.drop_path1, self.drop_path2 = DropPath(), DropPath()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.drop_path1(self.ls1(self.attn(self.norm1(x))))
        y: Tensor = x + self.drop_path2(self.ls2(self.mlp(self.norm2(x))))
        return y


class PatchEmbed(nn.Module):
    """Patches as tokens, with timm's checks of the size."""

    def __init__(self, dim: int, patch: int = 4, strict: bool = True) -> None:
        super().__init__()
        self.img_size, self.strict = (8, 8), strict
        self.proj, self.norm = nn.Conv2d(3, dim, patch, patch), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        _, _, height, width = x.shape
        if self.strict:
            assert height == self.img_size[0], f"Input height ({height}) doesn't match model ({self.img_size[0]})."
            torch._assert(width == self.img_size[1], "Input width doesn't match model.")
        tokens: Tensor = self.norm(self.proj(x).flatten(2).transpose(1, 2))
        return tokens


class VisionTransformer(nn.Module):
    """forward_features, a pool of tokens, and forward_head with pre_logits."""

    def __init__(self, global_pool: str = "token", fused: bool = True) -> None:
        super().__init__()
        self.global_pool, self.num_prefix_tokens = global_pool, 1
        self.patch_embed, self.blocks = PatchEmbed(DIM), nn.Sequential(Block(DIM, fused))
        self.cls_token, self.pos_embed = nn.Parameter(torch.randn(1, 1, DIM)), nn.Parameter(torch.randn(1, 5, DIM))
        self.norm_pre, self.norm = nn.Identity(), nn.LayerNorm(DIM, eps=1e-6)
        self.fc_norm, self.head_drop, self.head = nn.Identity(), nn.Dropout(0.1), nn.Linear(DIM, CLASSES)

    def forward_features(self, x: Tensor) -> Tensor:
        x = self.patch_embed(x)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1) + self.pos_embed
        y: Tensor = self.norm(self.blocks(self.norm_pre(x)))
        return y

    def pool(self, x: Tensor) -> Tensor:
        if self.global_pool == "avg":
            return x[:, self.num_prefix_tokens :].mean(dim=1)
        if self.global_pool == "avgmax":
            return 0.5 * (x[:, self.num_prefix_tokens :].amax(dim=1) + x[:, self.num_prefix_tokens :].mean(dim=1))
        return x[:, 0]

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        x = self.head_drop(self.fc_norm(self.pool(x)))
        return x if pre_logits else self.head(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


class SelectAdaptivePool2d(nn.Module):
    """timm's global pool: average, maximum, their mean, or both side by side."""

    def __init__(self, pool_type: str = "avg", flatten: bool = True) -> None:
        super().__init__()
        self.pool_type = pool_type
        self.flatten = nn.Flatten(1) if flatten else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        average, largest = F.adaptive_avg_pool2d(x, 1), F.adaptive_max_pool2d(x, 1)
        pools = {"avg": average, "max": largest, "avgmax": 0.5 * (average + largest)}
        y: Tensor = self.flatten(pools[self.pool_type])
        return y


class NormMlpClassifierHead(nn.Module):
    """Pool, norm, optional hidden layer (pre_logits) and classifier."""

    def __init__(self, dim: int, pool_type: str, hidden: bool) -> None:
        super().__init__()
        self.global_pool, self.norm = SelectAdaptivePool2d(pool_type, flatten=False), LayerNorm2d(dim)
        self.flatten, self.drop, self.fc = nn.Flatten(1), nn.Dropout(0.1), nn.Linear(dim, CLASSES)
        self.pre_logits = nn.Sequential(nn.Linear(dim, dim), nn.Tanh()) if hidden else nn.Identity()

    def forward(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        x = self.drop(self.pre_logits(self.flatten(self.norm(self.global_pool(x)))))
        y: Tensor = x if pre_logits else self.fc(x)
        return y


class ConvNeXt(nn.Module):
    """A stem, one block with a depthwise filter, a downsampling, and the head."""

    def __init__(self, pool: str = "avg", hidden: bool = False, conv_mlp: bool = False) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, DIM, 2, 2), LayerNorm2d(DIM))
        self.conv_dw, self.use_conv_mlp = nn.Conv2d(DIM, DIM, 3, padding=1, groups=DIM), conv_mlp
        self.norm = LayerNorm2d(DIM) if conv_mlp else nn.LayerNorm(DIM)
        self.mlp = Mlp(DIM, 2 * DIM, use_conv=conv_mlp)
        self.gamma, self.drop_path = nn.Parameter(0.5 * torch.ones(DIM)), DropPath()
        self.downsample = nn.Sequential(LayerNorm2d(DIM), nn.Conv2d(DIM, DIM, 2, 2))
        self.head = NormMlpClassifierHead(DIM, pool, hidden)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x = self.stem(x)
        x = self.conv_dw(x)
        if self.use_conv_mlp:
            x = self.mlp(self.norm(x))
        else:
            x = self.mlp(self.norm(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
        x = self.drop_path(x.mul(self.gamma.reshape(1, -1, 1, 1))) + shortcut
        y: Tensor = self.head(self.downsample(x))
        return y


class SqueezeExcite(nn.Module):
    """Squeeze and excitation, with a mean over the sides or a maximum beside it."""

    def __init__(self, channels: int, add_maxpool: bool = False, gate: type[nn.Module] = nn.Sigmoid) -> None:
        super().__init__()
        self.add_maxpool = add_maxpool
        self.conv_reduce, self.act1 = nn.Conv2d(channels, 2, 1), nn.ReLU(inplace=True)
        self.conv_expand, self.gate = nn.Conv2d(2, channels, 1), gate()

    def forward(self, x: Tensor) -> Tensor:
        x_se = x.mean((2, 3), keepdim=True)
        if self.add_maxpool:
            x_se = 0.5 * x_se + 0.5 * x.amax((2, 3), keepdim=True)
        y: Tensor = x * self.gate(self.conv_expand(self.act1(self.conv_reduce(x_se))))
        return y


class Conv2dSame(nn.Conv2d):
    """A convolution with TensorFlow's padding, computed from the size of the input."""

    def forward(self, x: Tensor) -> Tensor:
        pads = []
        for side, size, stride in zip(x.shape[-2:], self.weight.shape[-2:], self.stride, strict=True):
            pads.append(max((-(side // -stride) - 1) * stride + size - side, 0))
        height, width = pads
        x = F.pad(x, (width // 2, width - width // 2, height // 2, height - height // 2))
        return F.conv2d(x, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


class EfficientNet(nn.Module):
    """An inverted residual with squeeze and excitation, between a stem and a head."""

    def __init__(
        self, act: type[nn.Module] = nn.SiLU, gate: type[nn.Module] = nn.Sigmoid, maxpool: bool = False
    ) -> None:
        super().__init__()
        norm = partial(BatchNormAct2d, act_layer=act)
        self.conv_stem, self.bn1 = Conv2dSame(3, 4, 3, stride=2, bias=False), norm(4)
        self.conv_pw, self.bn2 = nn.Conv2d(4, DIM, 1, bias=False), norm(DIM)
        self.conv_dw, self.bn3 = nn.Conv2d(DIM, DIM, 3, padding=1, groups=DIM, bias=False), norm(DIM)
        self.se, self.conv_pwl = SqueezeExcite(DIM, maxpool, gate), nn.Conv2d(DIM, 4, 1, bias=False)
        self.bn4, self.drop_path = BatchNormAct2d(4, nn.Identity), DropPath()
        self.global_pool, self.drop_rate = SelectAdaptivePool2d("avg"), 0.2
        self.classifier = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x = self.bn1(self.conv_stem(x))
        x = self.se(self.bn3(self.conv_dw(self.bn2(self.conv_pw(x)))))
        x = self.drop_path(self.bn4(self.conv_pwl(x))) + shortcut
        x = self.global_pool(x)
        if self.drop_rate > 0.0:
            x = F.dropout(x, p=self.drop_rate, training=self.training)
        y: Tensor = self.classifier(x)
        return y


class MlpMixer(nn.Module):
    """One mixer block over tokens and channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = PatchEmbed(DIM, strict=False), nn.LayerNorm(DIM, eps=1e-6)
        self.norm1, self.mlp_tokens = nn.LayerNorm(DIM, eps=1e-6), Mlp(4, 6)
        self.norm2, self.mlp_channels = nn.LayerNorm(DIM, eps=1e-6), Mlp(DIM, 16)
        self.drop_path, self.head = DropPath(), nn.Linear(DIM, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.drop_path(self.mlp_tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2))
        x = x + self.drop_path(self.mlp_channels(self.norm2(x)))
        y: Tensor = self.head(self.norm(x).mean(dim=1))
        return y


BUILDERS: dict[str, Callable[[], nn.Module]] = {
    "vit": VisionTransformer,
    "vit, average of tokens": partial(VisionTransformer, "avg"),
    "vit, average and maximum": partial(VisionTransformer, "avgmax", fused=False),
    "convnext": ConvNeXt,
    "convnext, hidden layer and two pools": partial(ConvNeXt, "avgmax", hidden=True, conv_mlp=True),
    "efficientnet": EfficientNet,
    "efficientnet, hard functions": partial(EfficientNet, nn.Hardswish, nn.Hardsigmoid, maxpool=True),
    "mixer": MlpMixer,
}


def built(build: Callable[[], nn.Module]) -> nn.Module:
    """Return the module in evaluation mode. Batch norms have statistics of random pictures."""
    torch.manual_seed(0)
    model = build()
    with torch.no_grad():
        for _ in range(3):
            model(torch.rand(16, 3, 8, 8))
    return model.eval()


@pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
def test_bounds_contain_points(build: Callable[[], nn.Module]) -> None:
    """Everything has a rule. Corners and steps along the gradient stay below the bound; it is not vacuous."""
    model, eps = built(build), 1e-3
    assert opaque_node(pm.trace(model, PICTURES)) is None
    found = pm.overlap(model, PICTURES, pm.Ball(eps, domain=(0.0, 1.0)))
    target = found.target[:, None]

    def margin(x: Tensor) -> Tensor:
        logits = model(x)
        others: Tensor = (logits - logits.gather(1, target)).scatter(1, target, -torch.inf)
        return others.amax(1)

    x = PICTURES.clone().requires_grad_()
    steps = [torch.autograd.grad(margin(x).sum(), x)[0].sign()]
    generator = torch.Generator().manual_seed(1)
    steps += [2.0 * torch.randint(0, 2, x.shape, generator=generator) - 1 for _ in range(50)]
    with torch.no_grad():
        reached = torch.stack([margin((PICTURES + eps * step).clamp(0, 1)) for step in steps]).amax(0)
    assert bool((reached > found.nominal).all())
    assert bool((reached <= found.full + 1e-6).all())
    assert bool((found.full <= found.nominal + 1.0).all())


def test_a_whole_explanation() -> None:
    found = pm.EVA(built(VisionTransformer), pm.Ball(1e-4), groups=pm.groups.grid(2)).explain(PICTURES)
    assert found.scores.shape == (2, 4)
    assert found.plot() is not None
