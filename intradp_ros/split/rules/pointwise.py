# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Element-wise operators, broadcasting included."""
from __future__ import annotations

from math import prod

import torch

from intradp_ros.split.calls.aligned import aligned_split, operands_of
from intradp_ros.split.calls.site import follow, Rule, rules, Site, Split
from intradp_ros.split.local_operator import Kind

#: Point-wise operators that torch does not declare so: other names of some, and two of torch 2.6.
_UNDECLARED = frozenset((
    'aten.ldexp.Tensor', 'aten.leaky_relu.default', *(
        f'aten.{name}.{form}' for form in ('Tensor', 'Scalar') for name in (
            'divide', 'greater', 'greater_equal', 'less', 'less_equal', 'multiply', 'not_equal',
            'subtract')), *(f'aten.{name}.default' for name in (
                'absolute', 'arccos', 'arcsin', 'arctan', 'fix', 'negative'))))


def is_pointwise(function: object) -> bool:
    """Return whether an operator overload of ATen is declared point-wise, and not random."""
    tags = getattr(function, 'tags', ())
    return torch.Tag.nondeterministic_seeded not in tags and (
        torch.Tag.pointwise in tags or str(function) in _UNDECLARED)


def split_pointwise(site: Site) -> Split | None:
    """Split along the dimension of the largest split operand; all line up from the right."""
    operands = operands_of(site)
    split = [
        (prod(site.shape(x)), -k, dim - len(site.shape(x))) for k, x in enumerate(operands)
        if (dim := site.split_dim(x)) is not None]
    return _split_from_right(site, max(split)[2]) if split else None


def _split_from_right(site: Site, from_right: int) -> Split | None:
    return aligned_split(
        site, Kind.ELEMENT, len(site.output_shape) + from_right,
        lambda operand: len(site.shape(operand)) + from_right)


def split_like(site: Site) -> Split | None:
    """Split an operator whose output has the shape of its first argument, element by element."""
    lead = site.lead()
    return follow(site, Kind.ELEMENT, lead[1]) if lead else None


def split_per_channel(site: Site) -> Split | None:
    """Split an operator with parameters for each channel (dimension 1) anywhere else."""
    lead = site.lead()
    if lead is None or lead[1] == 1 or not site.only_first_output():
        return None
    return follow(site, Kind.ELEMENT, lead[1])


def split_batch_norm(site: Site) -> Split | None:
    """Split batch normalisation by running statistics; by those of the batch it is global."""
    return None if site.call.argument('training') else split_per_channel(site)


RULES: dict[str, Rule] = {
    **rules(split_pointwise, (
        *(f'aten.__{name}__.{form}' for name in ('and', 'or')
          for form in ('Scalar', 'Tensor')),
        'aten.masked_fill.Tensor',
        'aten.rsub.Tensor',
        'aten.where.ScalarOther',
        'aten.where.ScalarSelf',
    )),
    **rules(split_like, (
        'aten._to_copy.default',
        'aten.alias.default',
        'aten.contiguous.default',
        'aten.detach.default',
        'aten.fill.Scalar',
        'aten.fill.Tensor',
        'aten.full_like.default',
        'aten.hardswish.default',
        'aten.lift_fresh_copy.default',
        'aten.log_sigmoid.default',
        'aten.ones_like.default',
        'aten.to.dtype',
        'aten.zeros_like.default',
    )),
    **rules(split_per_channel, (
        'aten._native_batch_norm_legit_no_training.default',
        'aten._prelu_kernel.default',
        'aten.prelu.default',
    )),
    'aten.batch_norm.default': split_batch_norm,
}
