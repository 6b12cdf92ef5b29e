# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Weights under which the output depends on the input, and the check that it does."""
from __future__ import annotations

import torch
from torch import nn

from intradp_ros.split.checks.calibrate import calibrate, depends_on_input, reactions

X = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def fading(depth: int = 20) -> nn.Module:
    """Return a network whose activations die out, and whose last layer is zero."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for k in range(depth):
        conv = nn.Conv2d(8 if k else 3, 8, 3, 1, 1)
        nn.init.normal_(conv.weight, std=1e-3)
        layers += [conv, nn.BatchNorm2d(8), nn.ReLU()]
    last = nn.Conv2d(8, 2, 1)
    nn.init.zeros_(last.weight)
    return nn.Sequential(*layers, last)


def test_fading_network_is_found_and_repaired() -> None:
    model = fading()
    assert not depends_on_input(model.eval(), (X,))
    assert calibrate(model, (X,)) is model
    assert depends_on_input(model, (X,))
    assert not model.training


def test_outputs_have_the_wanted_spread() -> None:
    model = calibrate(fading(), (X,))
    with torch.no_grad():
        assert 0.25 < model(X).std().item() < 1


def test_result_is_reproducible_and_leaves_the_random_state() -> None:
    before = torch.random.get_rng_state()
    models = [calibrate(fading(), (X,), seed=5) for _ in range(2)]
    torch.random.set_rng_state(before)
    expected = torch.rand(3)
    torch.random.set_rng_state(before)
    calibrate(models[0], (X,), seed=6)
    assert torch.equal(torch.rand(3), expected)
    first = [dict(m.state_dict()) for m in (calibrate(fading(), (X,), seed=5) for _ in range(2))]
    assert all(torch.equal(first[0][k], first[1][k]) for k in first[0])


def test_layer_that_ignores_its_input_is_found() -> None:
    class Constant(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x * 2, torch.arange(4.0) + 0 * x.sum()

    assert not depends_on_input(Constant(), (X,))


def test_models_that_do_not_mind_the_order_are_no_constants() -> None:
    class Cloud(nn.Module):
        def forward(self, points: torch.Tensor) -> torch.Tensor:
            return points.double().sum(-1)

    assert depends_on_input(Cloud(), (X,))
    for dtype in (torch.uint8, torch.uint16, torch.bool):
        assert depends_on_input(Cloud(), ((X > 0.7).to(dtype),))


def test_single_numbers_react_in_units_of_their_magnitude() -> None:
    class Angle(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 10 + x[..., :1].mean().view(1, 1)

    (reaction,) = reactions(Angle(), (X,))
    assert reaction is not None and 1e-3 < reaction < 0.1


def test_modules_without_tensor_results_are_left_alone() -> None:
    class Pair(nn.Linear):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = super().forward(x)
            return y, -y

    model = calibrate(Pair(16, 4), (X,))
    assert depends_on_input(model, (X,))
