"""Frozen modules as features, for examples/frozen.toml: each function is called with p, the numbers of a sample, and
returns a module (or a function of arrays) that maps (m, p) to (m, q), one sample at a time.
"""

from __future__ import annotations

import math

import torch
from torch import nn


def convolutions(p: int) -> nn.Module:
    """Random convolutions of square grey pictures, drawn from a fixed seed: 64 channels of half the side."""
    side = math.isqrt(p)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Unflatten(1, (1, side, side)), nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten()
        )


def pretrained(p: int) -> nn.Module:
    """torchvision's ResNet18, trained on pictures that are nobody's here: 512 numbers.  Its weights lie beside this
    file, which every host needs in the same version.
    """
    from torchvision.models import resnet18

    module = resnet18()
    module.load_state_dict(torch.load(f"{__file__}.resnet18.pt", weights_only=True))
    module.fc = nn.Identity()
    channels, side = (3, math.isqrt(p // 3)) if math.isqrt(p) ** 2 != p else (1, math.isqrt(p))
    grey = [] if channels == 3 else [nn.Conv2d(1, 3, 1, bias=False)]
    for layer in grey:
        nn.init.ones_(layer.weight)
    return nn.Sequential(nn.Unflatten(1, (channels, side, side)), *grey, nn.Upsample(64), module)
