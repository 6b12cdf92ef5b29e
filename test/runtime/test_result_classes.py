# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Which results are tensors and no more."""
from __future__ import annotations

from typing import Any

from imagined_accelerator import NAME, needed
import pytest
import torch

from intradp_ros.graph.call_context import is_plain
from intradp_ros.graph.graph_errors import CaptureError
from intradp_ros.runtime.models.results import Results


class Named(torch.Tensor):
    """A tensor that does more."""

    unit = 'metre'


class Seen(torch.Tensor):
    """One that sees operators, on a device of PyTorch's."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        raise NotImplementedError


@needed
def test_tensors_of_a_backend_are_plain_tensors() -> None:
    there = torch.ones(2).to(NAME)
    assert type(there) is not torch.Tensor and is_plain(there)
    Results.of([there], [there])


@pytest.mark.parametrize('kind', [Named, Seen])
def test_other_classes_are_refused(kind: type[torch.Tensor]) -> None:
    other = torch.ones(2).as_subclass(kind)
    assert not is_plain(other)
    with pytest.raises(CaptureError, match=kind.__name__):
        Results.of([other], [torch.ones(2)])


def test_one_list_in_two_places_is_refused() -> None:
    x = torch.ones(2)
    one = [x]
    with pytest.raises(CaptureError, match='two places'):
        Results.of((one, {'again': one}), [x])
    Results.of(((x,), (x,), [x], [x]), [x])
