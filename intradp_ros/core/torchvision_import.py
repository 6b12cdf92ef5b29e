# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Torchvision with a CPU build of torch.

The wheels on PyPI are built for CUDA: without CUDA's libraries their compiled operators do not
load, and the import then stops because it describes operators that do not exist.  Declared here
before the import, they do, and the package works as far as nobody calls them: they are the
post-processing of detectors, which stands behind the heads that are split.
"""
from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
import sys
from typing import Any

import torch
from torch import library

_SCHEMAS = {
    'nms': '(Tensor dets, Tensor scores, float iou_threshold) -> Tensor',
    'qnms': '(Tensor dets, Tensor scores, float iou_threshold) -> Tensor',
    'roi_align': '(Tensor input, Tensor rois, float spatial_scale, int pooled_height, '
                 'int pooled_width, int sampling_ratio, bool aligned) -> Tensor',
}


@cache
def declare_operators() -> None:
    """
    Make ready for code that imports torchvision by itself, as networks and tasks of users do.

    Does nothing where torchvision is not installed, or where its compiled operators load.
    """
    if 'torchvision' in sys.modules or (found := find_spec('torchvision')) is None:
        return
    compiled = PathFinder.find_spec('_C', found.submodule_search_locations)
    if compiled is not None and compiled.origin:
        try:
            torch.ops.load_library(compiled.origin)  # type: ignore[no-untyped-call]
            return
        except OSError:
            pass
    declared: Any = library.Library('torchvision', 'FRAGMENT')  # type: ignore
    for name, schema in _SCHEMAS.items():
        declared.define(name + schema)
    _KEPT.append(declared)  # what it declares lives as long as it does


def torchvision() -> Any:
    """
    Import torchvision, with operators declared that its compiled library would bring.

    Every package that imports torchvision must be imported afterwards.

    :raises ModuleNotFoundError: if torchvision is not installed.
    """
    declare_operators()
    return import_module('torchvision')


_KEPT: list[Any] = []
