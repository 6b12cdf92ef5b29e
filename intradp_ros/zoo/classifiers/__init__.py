# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The classifiers that the paper evaluates, as architectures: their weights are random.

They follow the papers that introduced them, with the operators of
torchvision's versions, whose recorded operator times they are compared with.
All take float32 ``1x3xHxW`` and give logits ``1x1000``.
"""
