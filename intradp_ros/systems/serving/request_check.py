# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whether the tensors of a request are those that a service takes."""
from __future__ import annotations

import numpy as np

from intradp_ros.runtime.requests.infer_requests import Tensors
from intradp_ros.systems.serving.executor import Opened
from intradp_ros.systems.serving.service import Service, TensorSpec


class RequestError(ValueError):
    """A request that a service does not take; the text names field and fix."""


def checked_tensors(tensors: Tensors, opened: Opened | None, service: Service) -> Tensors:
    """
    Return the tensors of one row as they are computed; a first dimension of 1 is left out.

    Until it is known what the service takes they are returned as they are.

    Raises
    ------
    RequestError
        If one is missing, unknown, or of another shape or dtype.

    """
    specs = opened.inputs if opened else service.inputs
    if not specs:
        return tensors
    for name in tensors:
        if all(spec.name != name for spec in specs):
            raise RequestError(f'{service.name} takes no input {name[:64]!r}; it takes '
                               f'{", ".join(spec.name for spec in specs)}')
    return {spec.name: _row(tensors, spec) for spec in specs}


def _row(tensors: Tensors, spec: TensorSpec) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    tensor = tensors.get(spec.name)
    wanted = f'send {spec.dtype} {"x".join(map(str, spec.shape)) or "(a number)"}'
    if tensor is None:
        raise RequestError(f'input {spec.name!r} is missing: {wanted}')
    if tensor.dtype.name != spec.dtype or not tensor.dtype.isnative:
        raise RequestError(f'input {spec.name!r} is {tensor.dtype.name}: {wanted}')
    if tensor.shape not in (spec.shape, (1, *spec.shape)):
        raise RequestError(f'input {spec.name!r} has shape '
                           f'{"x".join(map(str, tensor.shape)) or "(a number)"}: {wanted}')
    return np.ascontiguousarray(tensor).reshape(spec.shape)
