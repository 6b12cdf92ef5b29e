# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a library does to pictures before its model sees them, measured on pictures.

Libraries have dozens of classes for that, each with keys of its own, and what
a key means depends on the class.  So none is interpreted: the library's own
code is run on a few made-up pictures, and what comes out says what a card has
to.  A card is only returned if it gives the library's numbers.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from intradp_ros.perception.card import CardError, CROP_OFFSETS, InputCard, INTERPOLATIONS
from intradp_ros.perception.view import as_carded, place

Array = npt.NDArray[Any]
#: Takes a picture (height, width, 3; uint8 RGB), returns 1 x 3 x height x width.
Process = Callable[[Array], torch.Tensor]
#: Height and width of pictures whose results differ by size: as cameras have them, and upright.
_FORMS = ((96, 128), (128, 96))
#: The longest side of pictures that ways to resize are compared on, to keep that short.
_LONGEST = 1024
#: What the mean and the greatest difference to the library may be, in levels of 0 to 255.
_MEAN_LEVELS, _MOST_LEVELS = 0.75, 12.0
#: What numbers of a library may differ by from those that it says: single precision.
_ROUNDING = 2e-5


class PreprocessingError(ValueError):
    """What a library does to pictures is nothing that a card can say; the text says what."""


@dataclass(frozen=True)
class Measured:
    """
    What was measured: a card, and the size of the input.

    `size` is None where it depends on the picture.  Then nothing is known of
    how pictures of another form are fitted.
    """

    card: InputCard
    size: tuple[int, int] | None


def measured(process: Process, mean: Sequence[float] = (), std: Sequence[float] = (),
             interpolation: str = 'bilinear') -> Measured:
    """
    Return what a library does to pictures.

    :param mean: with `std` what the library says, taken where it is what it does (that
        has fewer digits).
    :param interpolation: what the library says; taken where the size depends on the picture.
    :raises PreprocessingError: if no card says it.
    """
    sizes = [_run(process, np.zeros((*form, 3), np.uint8)).shape[2:] for form in _FORMS]
    scaling = scaling_of(process, mean, std)
    if sizes[0] != sizes[1]:
        return Measured(replace(scaling, interpolation=interpolation), None)
    size = (int(sizes[0][0]), int(sizes[0][1]))
    return Measured(_fit(process, scaling, size), size)


def _run(process: Process, picture: Array) -> torch.Tensor:
    made = process(picture)
    if not isinstance(made, torch.Tensor) or made.dim() != 4 or made.shape[:2] != (1, 3):
        shape = tuple(made.shape) if isinstance(made, torch.Tensor) else type(made).__name__
        raise PreprocessingError(f'the library makes {shape} of a picture, not one of 1 x 3 x '
                                 'height x width')
    return made.double()


def _levels(process: Process, colour: Sequence[int]) -> torch.Tensor:
    """Return what becomes of a colour (three numbers), in the middle of a picture."""
    made = _run(process, np.full((*_FORMS[0], 3), np.array(colour, np.uint8)))
    return made[0, :, made.shape[2] // 2, made.shape[3] // 2]


def scaling_of(process: Process, mean: Sequence[float], std: Sequence[float]) -> InputCard:
    """Return colours, mean and std, by what becomes of plain colours."""
    black = _levels(process, (0, 0, 0))
    steps = torch.stack([_levels(process, colour) - black
                         for colour in ((255, 0, 0), (0, 255, 0), (0, 0, 255))], 1)
    orders = {'rgb': steps.diagonal(), 'bgr': steps.fliplr().diagonal()}
    colours = max(orders, key=lambda name: float(orders[name].abs().sum()))
    scale = orders[colours]
    other = steps if colours == 'rgb' else steps.fliplr()
    mixed = (other - torch.diag(scale)).abs().max()
    if not bool((scale > 0).all()) or float(mixed) > 1e-6 * float(scale.max()):
        raise PreprocessingError('the library mixes colours, or turns them into others (grey, '
                                 'negatives), which a card does not say')
    grey = _levels(process, (64, 64, 64))
    if float((grey - black - scale * 64 / 255).abs().max()) > 1e-4 * float(scale.max()):
        raise PreprocessingError('the library changes levels in another way than by a factor and '
                                 'a difference (gamma, equalisation, steps), which a card does '
                                 'not say')
    made = [tuple((0.0 - black / scale).tolist()), tuple((1 / scale).tolist())]
    for said in ((mean, std), ((0.0,) * 3, (1.0,) * 3)):
        known = [[float(x) for x in part] for part in said]
        if all(len(part) == 3 for part in known) and np.allclose(
                known, made, rtol=_ROUNDING, atol=_ROUNDING):
            made = [tuple(known[0]), tuple(known[1])]
    if made == [(0.0,) * 3, (1.0,) * 3]:
        return InputCard(colours=colours)
    try:
        return InputCard(colours=colours, mean=made[0], std=made[1])
    except CardError as error:
        raise PreprocessingError(f'the library makes numbers of pixels that no card says: {error}'
                                 ) from error


def _fit(process: Process, scaling: InputCard, size: tuple[int, int]) -> InputCard:
    """Return the card by which pictures of some forms become what the library makes of them."""
    long = min(_LONGEST, max(160, round(1.6 * max(size))))
    short = round(0.7 * long)
    pictures = [_picture(form) for form in ((short, long), (long, short), _FORMS[0])]
    wanted = [_as_levels(_run(process, picture), scaling) for picture in pictures]

    def off(card: InputCard) -> tuple[float, float]:
        apart = [np.abs(as_carded(picture, size, card)[0].astype(np.float64) - levels)
                 for picture, levels in zip(pictures, wanted)]
        return max(float(x.mean()) for x in apart), max(float(x.max()) for x in apart)

    boxed = replace(scaling, resize='letterbox', pad=0, interpolation='bilinear')
    cut = [replace(scaling, resize=fit, share=share, crop_offset=offset, interpolation='bilinear')
           for fit, share, offset in product(
               ('stretch', 'crop'), _shares(process, scaling, size), CROP_OFFSETS)]
    placed = min((boxed, *cut), key=off)
    if placed.resize == 'crop':  # a picture cut by half a pixel shows how sizes are rounded
        form = next(((short, long + k) for k in range(8) if _odd((short, long + k), size, placed)),
                    (short, long))
        pictures.append(_picture(form))
        wanted.append(_as_levels(_run(process, pictures[-1]), scaling))
        placed = min((replace(placed, crop_offset=offset) for offset in CROP_OFFSETS), key=off)
    best = min((replace(placed, interpolation=way) for way in INTERPOLATIONS), key=off)
    mean, most = off(best)
    if mean > _MEAN_LEVELS or most > _MOST_LEVELS:
        raise PreprocessingError(
            f'no card brings pictures into the size {size[1]} x {size[0]} as the library does: '
            f'the nearest ({best.resize}, {best.interpolation}, share {best.share:.3g}) differs '
            f'by {mean:.1f} of 255 levels on average')
    return best


def _odd(form: tuple[int, int], size: tuple[int, int], card: InputCard) -> bool:
    """Whether the halves of what is cut from a picture's width are rounded in different ways."""
    view = place(form, size, card.resize, None, card.share)
    return (round(form[1] * view.scale[0]) - size[1]) % 4 == 3


def _shares(process: Process, scaling: InputCard, size: tuple[int, int]) -> list[float]:
    """Return likely shares of the shorter side that are shown, by what becomes of a slope."""
    height, form = 384, (384, 512)
    slope = np.broadcast_to((64 + 128 * np.arange(height) / height)[:, None, None], (*form, 3))
    levels = _as_levels(_run(process, np.round(slope).astype(np.uint8)), scaling)
    down = levels[:, size[1] // 2, 1]
    quarter = len(down) // 4
    shown = (down[3 * quarter] - down[quarter]) / 128 * len(down) / (2 * quarter)
    if not 0.3 < shown < 1.02:
        return [1.0]
    whole = round(max(size) / min(1.0, shown))
    around = range(max(max(size), whole - 4), whole + 5)
    return list(dict.fromkeys([1.0, *(max(size) / n for n in around)]))


def _as_levels(made: torch.Tensor, scaling: InputCard) -> Array:
    """Return what a library made of a picture in levels of 0 to 255 (height, width, RGB)."""
    mean, std = (torch.tensor(x, dtype=torch.float64).reshape(3, 1, 1) for x in (
        scaling.mean or (0.0,) * 3, scaling.std or (1.0,) * 3))
    levels: Array = (255 * (made[0] * std + mean)).permute(1, 2, 0).numpy()
    return levels if scaling.colours == 'rgb' else levels[..., ::-1]


def _picture(form: tuple[int, int]) -> Array:
    """Return a picture with slopes, edges and fine detail, by which ways to resize differ."""
    height, width = form
    y, x = np.mgrid[:height, :width]
    slopes = np.stack([255 * x / width, 255 * y / height, 127 + 100 * np.sin(x / 5 + y / 7)], -1)
    noise = np.random.default_rng(0).integers(-40, 40, (height, width, 3))
    edges = 60 * ((x // 16 + y // 16) % 2)[..., None]
    picture: Array = (slopes + noise + edges).clip(0, 255).astype(np.uint8)
    return picture
