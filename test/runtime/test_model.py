# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What cannot be shared is refused as soon as it is to be made ready, with the cause."""
from __future__ import annotations

import pytest
import torch
from torch import nn

from intradp_ros.graph.graph_errors import CaptureError
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.runtime.models.model import share_module

X = torch.ones(1, 2, 4, 4)


class Decides(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x - 1


def test_a_model_that_is_no_graph_is_refused_with_the_cause() -> None:
    with pytest.raises(CaptureError, match='depend'):
        share_module(Decides(), (X,))
    with pytest.raises(CaptureError, match='depend'):
        ModelSpec(f'{__name__}:Decides', tuple(X.shape)).load()


def test_a_model_that_computes_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match='Identity computes nothing'):
        share_module(nn.Identity(), (X,))
