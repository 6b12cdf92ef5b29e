# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Architectures of the zoo have the size that their papers state."""
from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from intradp_lab.zoo.classifiers.convnext import convnext_base
from intradp_lab.zoo.classifiers.densenet import densenet121
from intradp_lab.zoo.classifiers.mobilenet_v3 import mobilenet_v3_small
from intradp_lab.zoo.classifiers.resnet import regnet_x_16gf, resnet101
from intradp_lab.zoo.classifiers.vgg import vgg19_bn
from intradp_lab.zoo.dense import depth, segmenter
from intradp_lab.zoo.scene_completion import scene_completion
from intradp_lab.zoo.yolo import detector_s, pose_l6


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize('factory, count', [
    (vgg19_bn, 143_678_248), (densenet121, 7_978_856), (resnet101, 44_549_160),
    (regnet_x_16gf, 54_278_536), (convnext_base, 88_591_464), (mobilenet_v3_small, 2_542_856)])
def test_classifiers_have_the_published_parameters(
        factory: Callable[[], nn.Module], count: int) -> None:
    with torch.device('meta'):
        model = factory()
    assert parameters(model) == count


def test_detectors_are_as_large_as_their_models() -> None:
    with torch.device('meta'):
        pose, small = pose_l6(), detector_s()
    assert parameters(pose) == pytest.approx(77e6, rel=0.01)
    assert parameters(small) == pytest.approx(7.2e6, rel=0.01)


@pytest.mark.parametrize('factory, shape, wanted', [
    (segmenter, (1, 3, 64, 96), [(1, 64, 96)]), (depth, (1, 3, 64, 96), [(1, 1, 64, 96)]),
    (detector_s, (1, 3, 64, 128), [(1, 300, 5), (1, 300)]),
    (scene_completion, (1, 1, 16, 32, 24), [(1, 16, 32, 24)])])
def test_answers_have_the_size_that_is_said(
        factory: Callable[[], nn.Module], shape: tuple[int, ...], wanted: list[object]) -> None:
    with torch.inference_mode():
        answers = factory()(torch.ones(shape, dtype=torch.uint8))
    answers = [answers] if isinstance(answers, torch.Tensor) else answers
    assert [tuple(a.shape) for a in answers] == wanted


def test_both_sides_draw_the_same_weights() -> None:
    torch.manual_seed(1)
    first = depth().state_dict()
    torch.manual_seed(2)
    before = torch.random.get_rng_state()
    second = depth().state_dict()
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(first[name], second[name]) for name in first)
