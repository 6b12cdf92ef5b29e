# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A proof that no sample of a pass changes what comes of another: by the operators, not by trying.

Each value of an export is constant, or one of its dimensions holds the samples.  A rule says where
they are in what an operator makes.  What no rule covers is not proved, and computed by grain.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
import math
import operator
from typing import Any

import torch
from torch import fx

from intradp_ros.systems.training.layers.export_rewrite import draws
from intradp_ros.systems.training.layers.layer_graph import size_line
from intradp_ros.systems.training.layers.stage_interpreter import (
    ATTENTION,
    BATCH_NORM,
    BERNOULLI,
    DROPOUT,
    FEATURE_DROPOUT,
    INSTANCE_NORM,
)


class NotProvedError(ValueError):
    """An operator may let samples change each other; the text names it."""


@dataclass(frozen=True, slots=True)
class Rows:
    """
    Where samples are: entry `(o * samples + sample) * inner + i` of dimension `dim` is of one.

    There are `outer` numbers o and `inner` numbers i.
    """

    dim: int
    outer: int = 1
    inner: int = 1


#: Where samples are in a value: None in a constant; of operators with several results, of each.
Found = Rows | None | tuple['Found', ...]
Given = dict[str, Any]
Rule = Callable[['_Proof', fx.Node, Given], Found]


def not_proved(graph: fx.Graph, plain: bool = False) -> str:
    """
    Return the operator for which it is not proved that samples are apart; '' if it is for all.

    Rows of inputs are in their first dimension.  Norms by statistics of a batch and dropout count
    as apart where a stage's interpreter runs them by grain: that is in the first dimension.  In
    what runs as it is (`plain`), they are not apart.
    """
    proof = _Proof()
    for node in graph.nodes:
        try:
            if plain and (draws(node) or node.target in _BATCHES):
                raise NotProvedError(_name(node))
            proof.take(node)
        except NotProvedError as error:
            return str(error)
        except (KeyError, IndexError, AttributeError, TypeError, ValueError):
            return _name(node)  # of a form that no rule knows
    return ''


def _name(node: fx.Node) -> str:
    schema = getattr(node.target, '_schema', None)
    return str(schema.name).removeprefix('aten::') if schema else str(node.target)


class _Proof:
    """What is known of the nodes so far."""

    def __init__(self) -> None:
        self.rows: dict[fx.Node, Found] = {}

    def take(self, node: fx.Node) -> None:
        if node.op == 'placeholder':
            self.rows[node] = Rows(0)
        elif node.op == 'get_attr':
            self.rows[node] = None
        elif node.op == 'call_function':
            self.rows[node] = self._made(node)
        elif node.op == 'output':
            for one in node.all_input_nodes:
                found = self.rows[one]
                if isinstance(found, Rows) and (found.dim or found.outer > 1):
                    raise NotProvedError('the order of what is returned')

    def _made(self, node: fx.Node) -> Found:
        if node.target is operator.getitem:
            of, k = node.args
            found = self.rows[of]  # type: ignore[index]
            return found[k] if isinstance(found, tuple) else found  # type: ignore[index]
        if isinstance(node.meta.get('val'), torch.SymInt | int | bool):
            return None  # a size: rules look at those that operators get
        schema = getattr(node.target, '_schema', None)
        if schema is None:
            raise NotProvedError(_name(node))
        packet = schema.name.removeprefix('aten::')
        if packet.startswith(('_assert', 'sym_constrain')):
            return None
        said = dict(zip((one.name for one in schema.arguments), node.args)) | node.kwargs
        given: Given = {one.name: said.get(one.name, one.default_value)
                        for one in schema.arguments
                        if one.name in said or one.has_default_value()}
        rule = _SPECIAL.get(node.target) or RULES.get(packet.rstrip('_'))
        if rule is None and torch.Tag.pointwise in node.target.tags:  # type: ignore[union-attr]
            rule = _pointwise
        if rule is None and not any(self.rows.get(one) for one in node.all_input_nodes) \
                and not _sizes(given) and not schema.is_mutable \
                and torch.Tag.nondeterministic_seeded not in node.target.tags:  # type: ignore[union-attr]
            return None  # of constants, a constant
        if rule is None:
            raise NotProvedError(packet)
        found = rule(self, node, given)
        if schema.is_mutable and ('out' in node.kwargs or found != self.of(node.args[0])):
            raise NotProvedError(f'{packet}, which writes to a value')
        return found

    def of(self, value: Any) -> Rows | None:
        """Return where samples are in an argument."""
        found = self.rows[value] if isinstance(value, fx.Node) else None
        if isinstance(found, tuple):
            raise NotProvedError('a tuple')
        return found

    def constant(self, given: Given, *names: str) -> None:
        """See that arguments are constants."""
        for name in names:
            for value in _listed(given.get(name)):
                if self.of(value) is not None:
                    raise NotProvedError(f'{name} of samples')


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def _sizes(given: Given) -> bool:
    """Whether an operator gets a number that depends on how many samples there are."""
    return any(isinstance(one, fx.Node) and isinstance(one.meta.get('val'), torch.SymInt)
               for value in given.values() for one in _listed(value))


def _shape(node: Any) -> torch.Size:
    shape: torch.Size = node.meta['val'].shape
    return shape


def _no_sizes(node: fx.Node, given: Given) -> None:
    if _sizes(given):
        raise NotProvedError(f'{_name(node)} of the number of samples')


def _from_right(proof: _Proof, node: fx.Node, values: Sequence[Any]) -> Rows | None:
    """Return where samples are, counted from the right, in tensors that are broadcast."""
    found: Rows | None = None
    for value in values:
        rows = proof.of(value)
        if rows is None:
            continue
        placed = Rows(len(_shape(value)) - 1 - rows.dim, rows.outer, rows.inner)
        if found is not None and placed != found:
            raise NotProvedError(f'{_name(node)} of samples in several dimensions')
        found = placed
    return found


def _pointwise(proof: _Proof, node: fx.Node, given: Given) -> Found:
    _no_sizes(node, given)
    values = [one for value in given.values() for one in _listed(value)
              if isinstance(one, fx.Node)]
    found = _from_right(proof, node, values)
    return None if found is None else Rows(len(_shape(node)) - 1 - found.dim, found.outer,
                                           found.inner)


def _reshaped(proof: _Proof, node: fx.Node, given: Given) -> Found:
    """Rows of what keeps all elements in their order."""
    first = next(iter(given.values()))
    rows = proof.of(first)
    return None if rows is None else _in_shape(_shape(first), rows, _shape(node))


def _in_shape(before: Sequence[Any], rows: Rows, after: Sequence[Any]) -> Rows:
    left = math.prod(before[:rows.dim]) * rows.outer
    right = rows.inner * math.prod(before[rows.dim + 1:])
    for dim, size in enumerate(after):
        slope, offset = size_line(size)
        if not slope:
            continue
        outer, rest = divmod(left, math.prod(after[:dim]))
        if offset or rest or slope % outer or \
                slope // outer * math.prod(after[dim + 1:]) != right:
            break
        return Rows(dim, outer, slope // outer)
    raise NotProvedError('reshape')


def _permuted(proof: _Proof, node: fx.Node, given: Given) -> Found:
    first = next(iter(given.values()))
    rows, count = proof.of(first), len(_shape(first))
    if rows is None:
        return None
    order = list(range(count))
    if 'dims' in given:
        order = [dim % count for dim in given['dims']]
    else:  # transpose, t
        a, b = (given.get('dim0', 0), given.get('dim1', 1)) if 'dim0' in given else (
            (0, 1) if count == 2 else (0, 0))
        order[a], order[b] = order[b], order[a]
    return Rows(order.index(rows.dim), rows.outer, rows.inner)


def _expanded(proof: _Proof, node: fx.Node, given: Given) -> Found:
    first = next(iter(given.values()))
    rows = proof.of(first)
    if rows is None:
        return _filled(proof, node, given)
    return Rows(rows.dim + len(_shape(node)) - len(_shape(first)), rows.outer, rows.inner)


def _filled(proof: _Proof, node: fx.Node, given: Given) -> Found:
    """Rows of what is the same everywhere, in the shape that the node has."""
    lines = [size_line(size) for size in _shape(node)]
    sized = [dim for dim, (slope, _) in enumerate(lines) if slope]
    if not sized:
        return None
    if len(sized) > 1 or lines[sized[0]][1]:
        raise NotProvedError(_name(node))
    return Rows(sized[0], 1, lines[sized[0]][0])


def _same(proof: _Proof, node: fx.Node, given: Given) -> Found:
    """Rows of what has the same dimensions; all else that it gets is constant."""
    _no_sizes(node, given)
    first, *others = given
    proof.constant(given, *others)
    return proof.of(given[first])


def _dims(given: Given, node: fx.Node, count: int) -> set[int]:
    """Return the dimensions that an operator works along; all, where it does not say."""
    found = given.get('dim', given.get('dims'))
    if found is None or found == []:
        return set(range(count))
    return {dim % count for dim in _listed(found)}


def _along(proof: _Proof, node: fx.Node, given: Given) -> Found:
    """Rows of what works along other dimensions and keeps them all."""
    first, *others = given
    rows = proof.of(given[first])
    _no_sizes(node, given)
    proof.constant(given, *others)
    if rows is not None and rows.dim in _dims(given, node, len(_shape(given[first]))):
        raise NotProvedError(f'{_name(node)} over samples')
    return (rows, rows) if isinstance(node.meta['val'], tuple | list) else rows


def _reduced(proof: _Proof, node: fx.Node, given: Given) -> Found:
    """Rows of what works along other dimensions, which go unless `keepdim` says otherwise."""
    rows = _along(proof, node, given)
    if isinstance(rows, tuple):
        rows = rows[0]
    if not isinstance(rows, Rows):
        return rows
    first = next(iter(given.values()))
    gone = _dims(given, node, len(_shape(first)))
    if not given.get('keepdim', False):
        rows = Rows(rows.dim - sum(dim < rows.dim for dim in gone), rows.outer, rows.inner)
    return (rows, rows) if isinstance(node.meta['val'], tuple | list) else rows


def _selected(proof: _Proof, node: fx.Node, given: Given) -> Found:
    """Rows of a part along another dimension, which stays (slice) or goes (select)."""
    first = next(iter(given.values()))
    rows, dim = proof.of(first), given.get('dim', 0) % len(_shape(first))
    proof.constant(given, 'index')
    _no_sizes(node, {k: v for k, v in given.items() if k != next(iter(given))})
    if rows is None:
        return None
    if dim == rows.dim:
        if _name(node) == 'slice' and given.get('start') in (None, 0) and \
                given.get('end') in (None, (1 << 63) - 1) and given.get('step') == 1:
            return rows
        raise NotProvedError(f'{_name(node)} of samples')
    return Rows(rows.dim - (_name(node) == 'select' and dim < rows.dim), rows.outer, rows.inner)


def _cut(proof: _Proof, node: fx.Node, given: Given) -> Found:
    """Rows of pieces along another dimension."""
    first = next(iter(given.values()))
    rows, dim = proof.of(first), given.get('dim', 0) % len(_shape(first))
    if rows is None:
        return tuple(None for _ in node.meta['val'])
    if dim == rows.dim:
        raise NotProvedError(f'{_name(node)} of samples')
    gone = _name(node) == 'unbind' and dim < rows.dim
    return tuple(Rows(rows.dim - gone, rows.outer, rows.inner) for _ in node.meta['val'])


def _joined(proof: _Proof, node: fx.Node, given: Given) -> Found:
    values = given['tensors']
    found = [proof.of(value) for value in values]
    if not any(found):
        return None
    known = next(rows for rows in found if rows)
    dim = given.get('dim', 0) % len(_shape(node))
    if _name(node) == 'stack':
        if any(rows != known for rows in found):
            raise NotProvedError('stack of samples and constants')
        return Rows(known.dim + (dim <= known.dim), known.outer, known.inner)
    if dim == known.dim and all(rows and (rows.dim, rows.inner) == (dim, known.inner)
                                for rows in found):
        return Rows(dim, sum(rows.outer for rows in found if rows), known.inner)
    if any(rows != known for rows in found) or dim == known.dim:
        raise NotProvedError('cat of samples')
    return known


def _product(proof: _Proof, node: fx.Node, given: Given) -> Found:
    a, b, *_ = [value for name, value in given.items()
                if name in ('self', 'other', 'mat1', 'mat2', 'batch1', 'batch2', 'vec')
                and not (name == 'self' and _name(node) in ('addmm', 'baddbmm'))]
    sizes = len(_shape(a)), len(_shape(b))
    placed: list[Rows] = []
    for value, contracted, count in ((a, 0, sizes[0]), (b, 1, sizes[1])):
        rows = proof.of(value)
        if rows is None:
            continue
        right = count - 1 - rows.dim
        if count == 1 or right == contracted:
            raise NotProvedError(f'{_name(node)} over samples')
        placed.append(Rows(right, rows.outer, rows.inner))
    if not placed:
        return None
    if len(placed) == 2 and (placed[0] != placed[1] or placed[0].dim < 2):
        raise NotProvedError(f'{_name(node)} of samples with samples')
    right = placed[0].dim - (sizes[1] == 1)  # of a vector, the last dimension goes
    found = Rows(len(_shape(node)) - 1 - right, placed[0].outer, placed[0].inner)
    if _name(node) in ('addmm', 'baddbmm'):
        added = proof.of(given['self'])
        if added is not None and Rows(
                added.dim + len(_shape(node)) - len(_shape(given['self'])), added.outer,
                added.inner) != found:
            raise NotProvedError(_name(node))
    return found


def _linear(proof: _Proof, node: fx.Node, given: Given) -> Found:
    rows = proof.of(given['input'])
    proof.constant(given, 'weight', 'bias')
    if rows is not None and rows.dim == len(_shape(given['input'])) - 1:
        raise NotProvedError('linear over samples')
    return rows


def _einsum(proof: _Proof, node: fx.Node, given: Given) -> Found:
    into, _, out = given['equation'].replace(' ', '').partition('->')
    labels = into.split(',')
    if not out or '.' in into:
        raise NotProvedError('einsum')
    found: tuple[str, Rows] | None = None
    for letters, value in zip(labels, given['tensors']):
        rows = proof.of(value)
        if rows is None:
            continue
        one = letters[rows.dim], Rows(0, rows.outer, rows.inner)
        if found is not None and one != found or letters.count(one[0]) > 1:
            raise NotProvedError('einsum of samples with samples')
        found = one
    if found is None:
        return None
    if found[0] not in out or any(found[0] in letters and proof.of(value) is None
                                  for letters, value in zip(labels, given['tensors'])):
        raise NotProvedError('einsum over samples')
    return Rows(out.index(found[0]), found[1].outer, found[1].inner)


def _batch(dims: int) -> Rule:
    """Return the rule of what takes a batch of images, of so many dimensions with it."""
    def rule(proof: _Proof, node: fx.Node, given: Given) -> Found:
        first, *others = given
        value, rows = given[first], proof.of(given[first])
        proof.constant(given, *(name for name in others if name != 'grid'))
        _no_sizes(node, given)
        if rows is not None and (rows.dim or len(_shape(value)) != dims) or \
                'grid' in given and proof.of(given['grid']) not in (rows, None):
            raise NotProvedError(f'{_name(node)} of samples')
        return (rows, rows) if isinstance(node.meta['val'], tuple | list) else rows
    return rule


def _convolution(proof: _Proof, node: fx.Node, given: Given) -> Found:
    return _batch(len(_shape(given['weight'])))(proof, node, given)


def _normed(proof: _Proof, node: fx.Node, given: Given) -> Found:
    rows = _same(proof, node, given)
    if isinstance(rows, Rows) and rows.dim >= len(_shape(given['input'])) - len(
            given['normalized_shape']):
        raise NotProvedError(f'{_name(node)} over samples')
    return rows


def _first(proof: _Proof, node: fx.Node, given: Given) -> Found:
    """Rows of what goes by grain in the first dimension."""
    rows = _same(proof, node, given)
    if not isinstance(rows, Rows) or rows.dim or rows.outer > 1:
        raise NotProvedError(f'{_name(node)} where samples are not in the first dimension')
    return rows


def _group_normed(proof: _Proof, node: fx.Node, given: Given) -> Found:
    rows = _same(proof, node, given)
    if isinstance(rows, Rows) and rows.dim:
        raise NotProvedError('group_norm over samples')
    return rows


def _embedded(proof: _Proof, node: fx.Node, given: Given) -> Found:
    proof.constant(given, 'weight')
    if given.get('scale_grad_by_freq'):
        raise NotProvedError('embedding with scale_grad_by_freq')
    return proof.of(given['indices'])


def _one_hot(proof: _Proof, node: fx.Node, given: Given) -> Found:
    if given.get('num_classes', -1) < 0:
        raise NotProvedError('one_hot without num_classes')
    return proof.of(given['self'])


def _padded(proof: _Proof, node: fx.Node, given: Given) -> Found:
    rows, count = proof.of(given['self']), len(_shape(given['self']))
    _no_sizes(node, given)
    pad: Any = given.get('pad', given.get('padding'))
    if rows is not None and rows.dim >= count - len(pad) // 2:
        raise NotProvedError(f'{_name(node)} of samples')
    return rows


def _attended(proof: _Proof, node: fx.Node, given: Given) -> Found:
    values = [given[name] for name in ('query', 'key', 'value')]
    found = _from_right(proof, node, values)
    mask, dropout = given.get('attn_mask'), given.get('dropout_p', 0.0)
    if found is None and proof.of(mask) is None:
        return None
    if found is None or found.dim < 2 or any(proof.of(value) is None for value in values):
        raise NotProvedError('attention over samples')
    if proof.of(mask) is not None and _from_right(proof, node, [mask, values[0]]) != found:
        raise NotProvedError('attention')
    rows = Rows(len(_shape(node)) - 1 - found.dim, found.outer, found.inner)
    if dropout and (rows.dim or rows.outer > 1):
        raise NotProvedError('dropout of attention where samples are not in the first dimension')
    return rows


def _recurrent(proof: _Proof, node: fx.Node, given: Given) -> Found:
    rows = proof.of(given['input'])
    states = [(value, proof.of(value)) for value in _listed(given['hx'])]
    proof.constant(given, 'params')
    if rows is None and not any(state for _, state in states):
        return tuple(None for _ in node.meta['val'])
    if rows is None or len(_shape(given['input'])) != 3 or \
            rows.dim != (0 if given['batch_first'] else 1) or \
            any(state not in (None, Rows(1, rows.outer, rows.inner)) for _, state in states):
        raise NotProvedError(f'{_name(node)} over samples')
    return (rows, *(Rows(1, rows.outer, rows.inner) for _ in node.meta['val'][1:]))


def _gathered(proof: _Proof, node: fx.Node, given: Given) -> Found:
    """Rows of what is taken from, or put to, places along another dimension."""
    values = [given[name] for name in ('self', 'index', 'src') if isinstance(
        given.get(name), fx.Node)]
    found = {proof.of(value) for value in values}
    if found == {None}:
        return None
    rows = next(rows for rows in found if rows)
    if found != {rows} or given['dim'] % len(_shape(values[0])) == rows.dim:
        raise NotProvedError(f'{_name(node)} of samples')
    return rows


def _indexed(proof: _Proof, node: fx.Node, given: Given) -> Found:
    """Rows of entries of another dimension, in the order of one constant row of numbers."""
    rows = proof.of(given['self'])
    used = [(dim, one) for dim, one in enumerate(given['indices']) if one is not None]
    proof.constant(given, 'indices')
    if rows is None:
        return None
    if len(used) != 1 or used[0][0] == rows.dim or len(_shape(used[0][1])) != 1 or \
            used[0][1].meta['val'].dtype is torch.bool:
        raise NotProvedError('indices of samples')
    return rows


def _index_selected(proof: _Proof, node: fx.Node, given: Given) -> Found:
    proof.constant(given, 'index')
    return _along(proof, node, given)


def _unreduced(proof: _Proof, node: fx.Node, given: Given) -> Found:
    """Rows of losses of which none are summed up, entry by entry."""
    if given['reduction'] != 0:
        raise NotProvedError(f'{_name(node)} that is summed up')
    return _pointwise(proof, node, given)


def _of_classes(proof: _Proof, node: fx.Node, given: Given) -> Found:
    """Rows of losses by class of which none are summed up."""
    if given['reduction'] != 0:
        raise NotProvedError(f'{_name(node)} that is summed up')
    proof.constant(given, 'weight')
    rows = [proof.of(given[name]) for name in ('self', 'target')]
    found = next((one for one in rows if one), None)
    count = len(_shape(given['self']))
    if found is not None and (found.dim or count < 2 or any(
            one not in (found, None) for one in rows)):
        raise NotProvedError(f'{_name(node)} of samples')
    return found


def _broadcast(proof: _Proof, node: fx.Node, given: Given) -> Found:
    found = _from_right(proof, node, given['tensors'])
    if found is None:
        return tuple(None for _ in node.meta['val'])
    return tuple(Rows(len(value.shape) - 1 - found.dim, found.outer, found.inner)
                 for value in node.meta['val'])


def _repeated(proof: _Proof, node: fx.Node, given: Given) -> Found:
    first: Any = given['self']
    times: Any = given.get('repeats', given.get('dims'))
    rows = proof.of(first)
    if rows is None:
        return _filled(proof, node, given) if len(times) == 0 else None
    _no_sizes(node, given)
    more = max(0, len(times) - len(_shape(first)))
    times = [1] * (len(_shape(first)) - len(times)) + list(times)
    if times[rows.dim + more] != 1:
        raise NotProvedError(f'{_name(node)} of samples')
    return Rows(rows.dim + more, rows.outer, rows.inner)


def _similar(proof: _Proof, node: fx.Node, given: Given) -> Found:
    """Rows of what is measured between entries of two values along a dimension."""
    one, other = [value for name, value in given.items() if name in ('x1', 'x2')]
    found = _from_right(proof, node, [one, other])
    if found is None:
        return None
    count = max(len(_shape(one)), len(_shape(other)))
    dim = count - 1 - found.dim
    gone = given.get('dim', -1) % count
    if dim == gone:
        raise NotProvedError(f'{_name(node)} over samples')
    return Rows(dim - (gone < dim and not given.get('keepdim', False)), found.outer, found.inner)


def _bilinear(proof: _Proof, node: fx.Node, given: Given) -> Found:
    proof.constant(given, 'weight', 'bias')
    found = _from_right(proof, node, [given['input1'], given['input2']])
    if found is not None and not found.dim:
        raise NotProvedError('bilinear over samples')
    return None if found is None else Rows(len(_shape(node)) - 1 - found.dim, found.outer,
                                           found.inner)


def _triangle(proof: _Proof, node: fx.Node, given: Given) -> Found:
    rows = proof.of(given['self'])
    if rows is not None and rows.dim >= len(_shape(given['self'])) - 2:
        raise NotProvedError(f'{_name(node)} of samples')
    return rows


def _named(rule: Rule, names: str) -> dict[str, Rule]:
    return dict.fromkeys(names.split(), rule)


RULES: Mapping[str, Rule] = {
    **_named(_reshaped, 'view reshape _unsafe_view flatten unflatten squeeze unsqueeze view_as '
             'reshape_as'),
    **_named(_permuted, 'permute transpose swapaxes swapdims t'),
    **_named(_expanded, 'expand expand_as'),
    **_named(_filled, 'zeros ones full new_zeros new_ones new_full zeros_like ones_like full_like '
             'scalar_tensor empty'),
    **_named(_same, 'clone contiguous detach alias to _to_copy type_as lift_fresh lift_fresh_copy '
             'prelu view_as_real view_as_complex nan_to_num real imag '
             'hardswish hardsigmoid'),
    **_named(_along, 'softmax log_softmax _softmax _log_softmax cumsum cumprod logcumsumexp '
             'cummax cummin sort argsort topk flip roll glu fft_fft fft_ifft fft_rfft fft_irfft '
             'fft_hfft fft_ihfft fft_fft2 fft_ifft2 fft_rfft2 fft_irfft2 fft_fftn fft_ifftn '
             'fft_rfftn fft_irfftn softmin fft_fftshift fft_ifftshift'),
    **_named(_reduced, 'sum mean amax amin max min var std var_mean std_mean norm prod any all '
             'argmax argmin logsumexp linalg_vector_norm median nansum nanmean count_nonzero '
             'kthvalue aminmax'),
    **_named(_selected, 'slice select narrow'),
    **_named(_cut, 'split split_with_sizes chunk unbind tensor_split'),
    **_named(_joined, 'cat stack concat'),
    **_named(_product, 'matmul mm bmm mv addmm baddbmm'),
    **_named(_convolution, 'conv1d conv2d conv3d convolution conv_transpose1d conv_transpose2d '
             'conv_transpose3d'),
    **_named(_batch(3), 'max_pool1d avg_pool1d adaptive_avg_pool1d adaptive_max_pool1d '
             'max_pool1d_with_indices upsample_linear1d upsample_nearest1d '
             '_upsample_nearest_exact1d col2im reflection_pad1d replication_pad1d'),
    **_named(_batch(4), 'max_pool2d avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d '
             'max_pool2d_with_indices upsample_bilinear2d upsample_nearest2d upsample_bicubic2d '
             '_upsample_nearest_exact2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa im2col '
             'pixel_shuffle pixel_unshuffle channel_shuffle reflection_pad2d replication_pad2d '
             'grid_sampler grid_sampler_2d fractional_max_pool2d'),
    **_named(_batch(5), 'max_pool3d avg_pool3d adaptive_avg_pool3d upsample_trilinear3d '
             'upsample_nearest3d reflection_pad3d replication_pad3d grid_sampler_3d'),
    **_named(_normed, 'layer_norm rms_norm'),
    **_named(_unreduced, 'mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy '
             'binary_cross_entropy_with_logits kl_div soft_margin_loss poisson_nll_loss '
             'hinge_embedding_loss margin_ranking_loss'),
    **_named(_of_classes, 'cross_entropy_loss nll_loss nll_loss_nd nll_loss2d'),
    **_named(_recurrent, 'lstm gru rnn_tanh rnn_relu'),
    **_named(_gathered, 'gather scatter scatter_add scatter_reduce'),
    **_named(_padded, 'constant_pad_nd pad'),
    **_named(_repeated, 'repeat tile'),
    **_named(_triangle, 'tril triu'),
    **_named(_similar, 'cosine_similarity pairwise_distance'),
    'linear': _linear, 'einsum': _einsum, 'group_norm': _group_normed, 'embedding': _embedded,
    'one_hot': _one_hot, 'scaled_dot_product_attention': _attended, 'index': _indexed,
    'index_select': _index_selected, 'broadcast_tensors': _broadcast, 'bilinear': _bilinear,
}
#: Operators that may normalise over samples; they go by grain in a stage only.
_BATCHES = (BATCH_NORM, INSTANCE_NORM)
_SPECIAL: Mapping[Any, Rule] = {
    BATCH_NORM: _first, INSTANCE_NORM: _first, DROPOUT: _first, FEATURE_DROPOUT: _first,
    BERNOULLI: _first, ATTENTION: _attended}
