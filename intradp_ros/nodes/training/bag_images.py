# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Images of a ROS 2 bag as samples: found by their stamps, read and decoded when they are taken.

Bags of SQLite and MCAP, raw or compressed images; nothing of ROS need be installed but its
messages.  Each process opens the bag itself.  What a bag holds compressed rosbags unpacks as it
claims: take bags of your own robots.  Several bags or topics are one dataset as
`torch.utils.data.ConcatDataset([BagImages(...), ...])`.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
import csv
import io
import os
from pathlib import Path
import re
import struct
import threading
from typing import Any

import torch

from intradp_ros.core.extras import pip_install
from intradp_ros.core.plain_file import open_to_read
from intradp_ros.nodes.common.bits_in_use import BitsInUse
from intradp_ros.nodes.sensors.image_messages import (
    as_tensor,
    decompressed,
    ImageError,
    MOST_PIXELS,
    to_rgb,
)
from intradp_ros.perception.card import InputCard
from intradp_ros.perception.view import as_carded
from intradp_ros.systems.training.base.task import MOST_SAMPLES, TaskError

IMAGE, COMPRESSED = 'sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage'
#: A message of more bytes is not a picture: 16-bit RGBA of the most pixels, and a header.
MOST_BYTES = 8 * MOST_PIXELS + (1 << 16)
_MISSING = f'bags are read by rosbags, which is not installed: {pip_install("training")}'


class BagImages:
    """
    The images of a topic that have a label, in the order of their stamps: (pixels, label) each.

    Attributes
    ----------
    stamps
        The stamp of each image in nanoseconds.

    """

    def __init__(self, bag: str | Path, topic: str, labels: Mapping[int, Any],
                 size: tuple[int, int], card: InputCard | None = None,
                 dtype: torch.dtype = torch.uint8, image_bits: int = 16) -> None:
        """
        Read the bag once, for the stamps of its images.

        :param bag: the folder that `ros2 bag record` wrote, or one file of it (.mcap, .db3).
        :param topic: of sensor_msgs/Image or sensor_msgs/CompressedImage.
        :param labels: the label of an image by its stamp in nanoseconds; images without one are
            left out. `labels_of_csv` and `labels_of_topic` make such.
        :param size: height and width of the samples.
        :param card: how an image becomes an input, as `inference_node` does it with a model's
            card.
        :param dtype: of the samples, shape (3, height, width): integers are pixels of 0 to 255,
            floating point numbers 0 to 1, or as the card normalises them.
        :param image_bits: the bits of 16-bit images that the camera uses (parameter of
            `inference_node`).

        :raises TaskError: if rosbags is missing, the bag cannot be read, has no images on the
            topic, or none that has a label.
        """
        self._path, self._topic, self._size = Path(bag), topic, size
        self._card, self._dtype, self._bits = card or InputCard(), dtype, image_bits
        self._lock, self._process = threading.Lock(), 0
        self._reader: Any = None
        if not all(1 <= edge <= 1 << 14 for edge in size):
            raise TaskError(f'size is (height, width) in pixels, 1 to {1 << 14} each, not {size}')
        try:
            BitsInUse(image_bits)
        except ValueError as error:
            raise TaskError(f'image_bits: {error}') from error
        found, images = dict[int, int](), 0
        with _reading(self._path):
            for when, data in self._messages(topic):
                images += 1
                stamp = _stamp(data, self._path)
                if stamp in labels:
                    found.setdefault(stamp, when)
                if len(found) > MOST_SAMPLES:
                    raise TaskError(f'{bag} has more than {MOST_SAMPLES} images with labels')
        if not images:
            raise TaskError(f'{bag} has no message on {topic}')
        if not found:
            raise TaskError(f'none of {images} images on {topic} of {bag} has a label: stamps of '
                            f'the images end at {stamp} ns, those of the labels at '
                            f'{max(labels, default="none")}')
        self.stamps: Sequence[int] = sorted(found)
        self._when = found
        self._labels = {stamp: labels[stamp] for stamp in found}

    def __len__(self) -> int:
        """Return how many images there are."""
        return len(self.stamps)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, Any]:
        """
        Return an image, and its label; the same ones whenever they are taken.

        :raises TaskError: if the image cannot be decoded, or the bag is not the one of before.
        """
        stamp = self.stamps[number]
        try:
            rgb = self._picture(stamp)
        except ImageError as error:
            raise TaskError(f'the image of {stamp} ns on {self._topic} of {self._path} cannot be '
                            f'used: {error}; leave its label out') from error
        shown, _ = as_carded(rgb, self._size, self._card)
        return as_tensor(shown, self._dtype, self._card)[0], self._labels[stamp]

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs, which opens the bag itself."""
        return {**self.__dict__, '_lock': None, '_reader': None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take what another process had."""
        self.__dict__.update(state, _lock=threading.Lock())

    def _picture(self, stamp: int) -> Any:
        """Return an image as uint8 RGB, shape (height, width, 3)."""
        from intradp_ros.nodes.common.bags import bag_types
        when = self._when[stamp]
        with self._lock, _reading(self._path):
            data = next((data for _, data in self._messages(self._topic, when, when + 1)
                         if _stamp(data, self._path) == stamp), None)
            if data is None:
                raise TaskError(f'{self._path} has no image of {stamp} ns any more: was it '
                                'recorded anew?')
            message = bag_types().deserialize_cdr(data, self._kind)
        bits = BitsInUse(self._bits)
        return to_rgb(message, bits) if self._kind == IMAGE else decompressed(message, bits)

    def _messages(self, topic: str, start: int | None = None,
                  stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Yield the time of the recorder and the bytes of messages; a reader for each process."""
        if self._reader is None or self._process != os.getpid():
            self._reader, self._process = _opened(self._path), os.getpid()
            self._kind = _kind(self._reader, topic, (IMAGE, COMPRESSED), self._path)
        for _, when, data in self._reader.messages(
                [each for each in self._reader.connections if each.topic == topic], start, stop):
            if len(data) > MOST_BYTES:
                raise TaskError(f'a message on {topic} of {self._path} has {len(data)} bytes, '
                                f'{MOST_BYTES} at most')
            yield when, data


def labels_of_csv(path: str | Path, names: Sequence[str] = ()) -> dict[int, int]:
    """
    Return classes by stamp (ns) from a CSV file with the columns stamp and label.

    A stamp is in seconds with a decimal point, or in nanoseconds without one, or in two columns
    sec and nanosec.  A label is a number, or one of `names`, whose place it then is.

    :raises TaskError: if the file or one of its lines makes no sense; the text names the line.
    """
    found = dict[int, int]()
    try:
        with io.TextIOWrapper(open_to_read(Path(path)), 'utf-8-sig', newline='') as file:
            for number, row in enumerate(csv.DictReader(file, skipinitialspace=True), 2):
                try:
                    found[_stamp_of(row)] = _class(row['label'].strip(), names)
                except (KeyError, AttributeError):
                    raise TaskError(f'{path}: write a first line "stamp,label", or '
                                    '"sec,nanosec,label", and as many values below') from None
                except ValueError as error:
                    raise TaskError(f'{path}, line {number}: {error}') from error
                if len(found) > MOST_SAMPLES:
                    raise TaskError(f'{path} has more than {MOST_SAMPLES} labels')
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TaskError(f'{path} cannot be read: {error}') from error
    return found


def labels_of_topic(bag: str | Path, topic: str,
                    label: Callable[[Any], Any | None]) -> dict[int, Any]:
    """
    Return labels by stamp (ns) from a topic of a bag whose messages have a header.

    `inference_node` gives its results the header of the image, so the answers of a larger network
    label the images of a smaller one.  `label` makes one of a message, or None to leave it out:
    see `likeliest`.

    :raises TaskError: if rosbags or the messages' package is missing, or the bag cannot be read.
    """
    path, found = Path(bag), dict[int, Any]()
    with _reading(path):
        reader = _opened(path)
        from intradp_ros.nodes.common.bags import bag_types
        store = bag_types()
        kind = _kind(reader, topic, store.fielddefs, path)
        for _, _, data in reader.messages(
                [each for each in reader.connections if each.topic == topic]):
            if len(data) > MOST_BYTES:
                raise TaskError(f'a message on {topic} of {bag} has {len(data)} bytes')
            made = label(store.deserialize_cdr(data, kind))
            if made is not None:
                found[_stamp(data, path)] = made
            if len(found) > MOST_SAMPLES:
                raise TaskError(f'{bag} has more than {MOST_SAMPLES} labels on {topic}')
        reader.close()
    return found


def likeliest(names: Sequence[str] = (), least: float = 0.0) -> Callable[[Any], int | None]:
    """
    Return what makes a class of a vision_msgs/Classification or Detection2DArray.

    It is the surest one's, a number or the place in `names`; None where no score reaches `least`.
    """
    def label(message: Any) -> int | None:
        all_of_them = message.results if hasattr(message, 'results') else [
            result.hypothesis for one in message.detections for result in one.results]
        best = max(all_of_them, key=lambda each: each.score, default=None)
        return None if best is None or best.score < least else _class(best.class_id, names)
    return label


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Make what goes wrong in a bag an error of the task that names the bag."""
    try:
        yield
    except TaskError:
        raise
    except Exception as error:  # whatever a damaged bag brings about
        raise TaskError(f'{path} cannot be read as a bag: {type(error).__name__}: {error}') \
            from error


def _opened(path: Path) -> Any:
    try:
        from rosbags.rosbag2 import Reader
    except ImportError:
        raise TaskError(_MISSING) from None
    reader = Reader(path)
    reader.open()
    return reader


def _kind(reader: Any, topic: str, wanted: Any, path: Path) -> str:
    """Return the type of a topic."""
    kinds = {each.msgtype for each in reader.connections if each.topic == topic}
    if len(kinds) != 1 or not kinds <= set(wanted):
        found = ', '.join(sorted(f'{each.topic} ({each.msgtype})' for each in reader.connections))
        raise TaskError(f'{path} has no {topic}' + (
            f' of one type that is known here ({", ".join(sorted(kinds))})' if kinds else '')
            + f'; it has {found[:1000] or "nothing"}')
    return str(*kinds)


def _stamp(data: bytes, path: Path) -> int:
    """Return the stamp (ns) of a serialised message that begins with a std_msgs/Header."""
    if len(data) < 12:
        raise TaskError(f'{path} holds a message of {len(data)} bytes, which has no header')
    seconds, nanoseconds = struct.unpack_from('<iI' if data[1] & 1 else '>iI', data, 4)
    return int(seconds) * 10**9 + int(nanoseconds)


def _stamp_of(row: Mapping[str, str]) -> int:
    if 'stamp' not in row:
        return int(row['sec']) * 10**9 + int(row['nanosec'])
    found = re.fullmatch(r'(\d{1,19})(?:\.(\d{1,9}))?', row['stamp'].strip())
    if found is None:
        raise ValueError(f'{row["stamp"]!r:.80} is not a stamp: write nanoseconds, or seconds '
                         'with a point and at most nine digits behind it')
    return int(found[1]) if found[2] is None else int(found[1] + found[2].ljust(9, '0'))


def _class(text: str, names: Sequence[str]) -> int:
    if text in names:
        return list(names).index(text)
    if not text.isdecimal():
        raise ValueError(f'{text!r:.80} is neither a number nor one of the names of classes')
    return int(text)
