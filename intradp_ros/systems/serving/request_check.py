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

    :raises RequestError: if one is missing, unknown, or of another shape or dtype.
    """
    specs = opened.inputs if opened else service.inputs
    if not specs:
        return tensors
    for name in tensors:
        if all(spec.name != name for spec in specs):
            raise RequestError(f'{service.name} takes no input {name[:64]!r}; it takes '
                               f'{", ".join(spec.name for spec in specs)}')
    return {spec.name: _row(tensors, spec) for spec in specs}


def check_outputs(tensors: Tensors, opened: Opened | None, service: Service) -> None:
    """
    Look at what another site answered, if it is known here what a service gives.

    :raises RequestError: if one is missing, unknown, or of another shape or dtype.
    """
    specs = opened.outputs if opened else service.outputs
    if not specs:
        return
    found = {name: (tensor.dtype.name, tensor.shape) for name, tensor in tensors.items()}
    wanted = {spec.name: (spec.dtype, spec.shape) for spec in specs}
    for name in (*wanted, *found):
        if found.get(name) != wanted.get(name):
            raise RequestError(f'output {name[:64]!r} is {_shown(found.get(name))}, not '
                               f'{_shown(wanted.get(name))}')


def _shown(found: tuple[str, tuple[int, ...]] | None) -> str:
    return f'{found[0]} {"x".join(map(str, found[1])) or "(a number)"}' if found else 'missing'


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
