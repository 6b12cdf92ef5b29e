# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The shape of a picture that a model takes, by what its source says and what is asked for."""
from __future__ import annotations

from collections.abc import Sequence
import inspect
import math

from torch import nn

from intradp_ros.importers.loading_error import LoadingError

#: Pixels of a picture above which no archive is made: as many as a message may have.
MOST_PIXELS = 2**26


def picture_shape(source: str, said: Sequence[int], given: Sequence[int]) -> tuple[int, ...]:
    """
    Return the shape 1 x 3 x height x width of a model's input.

    :param said: what the source says, 0 for what it leaves open; empty for nothing.
    :param given: what is asked for, empty for what the source says.
    :raises LoadingError: if the model takes no such picture, or nothing says its size.
    """
    _check_said(source, said)
    shape = tuple(given or (1, 3, *said[2:]) * bool(said))
    if not shape:
        raise LoadingError('give --input 1x3xHEIGHTxWIDTH: the source does not say it')
    if len(shape) != 4 or shape[:2] != (1, 3):
        raise LoadingError(f'--input {_text(shape)} is not a picture: archives are made for '
                           '1x3xHEIGHTxWIDTH, one picture of three colours (a model of grey '
                           'pictures can be made to average the colours first)')
    if 0 in shape:
        raise LoadingError('give --input 1x3xHEIGHTxWIDTH: the source leaves height and width '
                           f'open ({_text(said)})')
    if math.prod(shape[2:]) > MOST_PIXELS:
        raise LoadingError(f'a picture of {shape[3]} x {shape[2]} has {math.prod(shape[2:])} '
                           f'pixels; {MOST_PIXELS} at most')
    return shape


def check_inputs(source: str, model: nn.Module) -> None:
    """Raise LoadingError if a module's `forward` needs more, or other, than one argument."""
    try:
        parameters = inspect.signature(model.forward).parameters.values()
    except (TypeError, ValueError):  # of a scripted module: counted by who loads it
        return
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return
    needed = [p.name for p in parameters if p.default is p.empty and p.kind in (
        p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if len(needed) != 1:
        raise LoadingError(f'{source} takes {len(needed)} inputs ({", ".join(needed)}); an '
                           'archive is made of models of one picture')


def _check_said(source: str, said: Sequence[int]) -> None:
    if not said:
        return
    if len(said) != 4:
        raise LoadingError(f'{source} takes a tensor of {len(said)} dimensions ({_text(said)}), '
                           'not a picture of 1x3xHEIGHTxWIDTH')
    batch, colours, height, width = said
    if colours not in (0, 3) and width == 3:
        raise LoadingError(f'{source} takes pictures with the colours last ({_text(said)}): '
                           'transpose its input to 1x3xHEIGHTxWIDTH before exporting it')
    if colours not in (0, 3):
        raise LoadingError(f'{source} takes {colours} channels ({_text(said)}), pictures have '
                           'three colours: let the model make of them what it takes')
    if batch not in (0, 1):
        raise LoadingError(f'{source} takes batches of {batch} ({_text(said)}): export it for one '
                           'picture')


def _text(shape: Sequence[int]) -> str:
    return 'x'.join(str(n) if n else '?' for n in shape)
