# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Random weights that are the same in every process and on every processor.

Two sides have the same model only if its weights are equal to the last bit.
What PyTorch draws depends on the processor's vector instructions, so weights
are drawn by NumPy, whose uniform numbers are integers until they are scaled.
"""
from __future__ import annotations

from collections.abc import Callable
from functools import wraps
import math

import numpy as np
import torch
from torch import nn

_DRAWN = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.ConvTranspose3d)
Factory = Callable[[], nn.Module]


def seeded(factory: Factory) -> Factory:
    """
    Let a factory draw the same weights each time, whatever was drawn before.

    Weights and biases of linear layers and convolutions become uniform numbers
    of the size that PyTorch gives them; what is constant stays.

    :raises ValueError: by the factory, if other modules have weights that are not constant.
    """
    @wraps(factory)
    def same() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = factory()
        _draw(model)
        return model

    return same


def _draw(model: nn.Module) -> None:
    """Draw the weights of a model anew; where there is only their shape, nothing."""
    random = np.random.Generator(np.random.PCG64(0))
    for name, module in model.named_modules():
        own = [p for p in module.parameters(recurse=False) if not p.is_meta]
        if isinstance(module, _DRAWN):
            size = 1 / math.sqrt(module.weight[0].numel())
            for parameter in own:
                numbers = parameter.detach().numpy()  # the same memory: some layers are large
                random.random(out=numbers, dtype=np.float32)
                numbers *= 2  # one operation after the other: a processor may round both as one
                numbers -= 1
                numbers *= size
        elif any((parameter != parameter.flatten()[0]).any() for parameter in own):
            raise ValueError(f'{name or type(model).__name__}: no linear layer or convolution, '
                             'but its weights are not constant')
