# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Names of operators and of rows, in the words of people who train networks, for pictures."""
from __future__ import annotations

from collections.abc import Mapping
import re

#: What ATen's names are called; the others are shown as they are.
WORDS: Mapping[str, str] = {
    'conv1d': 'convolution', 'conv2d': 'convolution', 'conv3d': 'convolution',
    'convolution': 'convolution', 'conv_transpose2d': 'transposed convolution',
    'linear': 'linear', 'addmm': 'linear', 'mm': 'matrix product', 'matmul': 'matrix product',
    'bmm': 'matrix product', 'batch_norm': 'batch norm', 'layer_norm': 'layer norm',
    'native_layer_norm': 'layer norm', 'group_norm': 'group norm', 'relu': 'ReLU',
    'relu6': 'ReLU6', 'hardtanh': 'ReLU6', 'gelu': 'GELU', 'silu': 'SiLU',
    'hardswish': 'hard swish', 'sigmoid': 'sigmoid', 'softmax': 'softmax',
    'max_pool2d': 'max pool', 'avg_pool2d': 'average pool', 'adaptive_avg_pool2d': 'mean',
    'mean': 'mean', 'cat': 'join', 'add': 'sum', 'sub': 'difference', 'mul': 'product',
    'div': 'quotient', 'to_copy': 'conversion', 'to': 'conversion', 'clone': 'copy',
    'permute': 'permutation', 'transpose': 'transposition', 'view': 'reshape',
    'reshape': 'reshape', 'flatten': 'flatten', 'slice': 'slice',
    'upsample_bilinear2d': 'upsampling', 'upsample_nearest2d': 'upsampling',
    'scaled_dot_product_attention': 'attention'}
_NAME = re.compile(r'_?(?P<base>[a-z][a-z0-9_]*?)(?:_(?P<number>\d+))?')
_ROWS = re.compile(r'(?P<name>.+)\[(?P<first>\d+):(?P<stop>\d+)\]')


def readable(name: str) -> str:
    """
    Return what a bar of a timeline is called.

    "conv2d_6" is the seventh convolution, "conv2d .. relu_2" a range of operators, and
    "image[62:336]" rows that move; what is not known stays as it is.
    """
    if rows := _ROWS.fullmatch(name):
        first, last = int(rows['first']), int(rows['stop']) - 1
        which = f'row {first}' if first == last else f'rows {first}–{last}'
        return f'{readable(rows["name"])}, {which}'
    first_name, dots, last_name = name.partition(' .. ')
    return f'{_word(first_name)} to {_word(last_name)}' if dots else _word(name)


def _word(name: str) -> str:
    found = _NAME.fullmatch(name)
    word = WORDS.get(found['base']) if found else None
    if found is None or word is None:
        return name
    return f'{word} {int(found["number"] or 0) + 1}'
