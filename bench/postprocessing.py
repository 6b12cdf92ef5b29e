# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a node does in addition to an inference: decoding, post-processing, making messages.

For a detector and a segmenter (YOLO11n-seg; AGPL-3.0, from wheels, not
shipped) on frames of a real video, in one process at one thread: from the
image message to the model's input, from the outputs to the answer, and from
the answer to serialised messages; medians.  `plain_ms` is the input alone as
one would make it without this package, by OpenCV and NumPy.
Target: all of it takes at most 1 ms and 3 % of the inference over that.
"""
from __future__ import annotations

import argparse
import array
from collections.abc import Callable
from functools import partial
import json
from statistics import median
import time
from typing import Any

import cv2
from models import print_table
import numpy as np
from rclpy.serialization import serialize_message
from sensor_msgs.msg import CameraInfo, CompressedImage
from std_msgs.msg import Header
import torch

from intradp_lab.zoo.coco import CARD, detector, segmenter
from intradp_lab.zoo.video import frames
from intradp_ros.cli.output_paths import result_file
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.nodes.sensors.image_messages import rgb_to_image
from intradp_ros.nodes.sensors.result_topics import topics_of
from intradp_ros.nodes.sensors.sensor_inputs import Camera
from intradp_ros.nodes.sensors.vision_messages import vision_messages
from intradp_ros.perception.decode import decode
from intradp_ros.profiling.machine import device_name, prepare_process

SIZE = (160, 320)
SHARE, MILLISECONDS = 0.03, 1.0


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return milliseconds and result of a call."""
    start = time.perf_counter()
    result = call()
    return 1e3 * (time.perf_counter() - start), result


def compressed(rgb: np.ndarray) -> CompressedImage:
    """Return a picture as JPEG."""
    message = CompressedImage(format='rgb8; jpeg compressed bgr8')
    message.data = array.array('B', cv2.imencode('.jpg', rgb[..., ::-1])[1].tobytes())
    return message


def plain_input(message: Any) -> torch.Tensor:
    """Return the input as OpenCV and NumPy alone make it, in a letterbox."""
    if isinstance(message, CompressedImage):
        decoded = cv2.imdecode(np.frombuffer(message.data, np.uint8), cv2.IMREAD_COLOR)
        assert decoded is not None
        rgb = cv2.cvtColor(decoded, cv2.COLOR_BGR2RGB)
    else:
        rgb = np.frombuffer(message.data, np.uint8).reshape(message.height, message.width, 3)
    height = round(rgb.shape[0] * SIZE[1] / rgb.shape[1])
    small = cv2.resize(rgb, (SIZE[1], height), interpolation=cv2.INTER_AREA)
    top = (SIZE[0] - height) // 2
    framed = cv2.copyMakeBorder(small, top, SIZE[0] - height - top, 0, 0, cv2.BORDER_CONSTANT,
                                value=(114, 114, 114))
    return torch.from_numpy(framed.transpose(2, 0, 1).copy())[None]


def measure(make: Callable[[], torch.nn.Module], *, jpeg: bool, count: int) -> dict[str, float]:
    """Return the figures of a network."""
    model, header = make(), Header(frame_id='camera')
    camera = Camera((1, 3, *SIZE), torch.uint8, CARD.input, compressed=jpeg)
    taken: dict[str, list[float]] = {
        name: [] for name in ('plain', 'input', 'inference', 'answer', 'messages')}
    for rgb in frames(count + 2, every=4):
        message = compressed(rgb) if jpeg else rgb_to_image(rgb)
        with torch.inference_mode():
            plain, _ = timed(partial(plain_input, message))
            given, came = timed(partial(camera.take, message))
            ran, outputs = timed(partial(model, came.tensor))
        assert came.scene is not None
        said, answer = timed(partial(decode, outputs, CARD.head, came.scene.view))
        assert answer is not None
        topics = topics_of(answer, CARD, vision_messages(), CameraInfo)

        def messages(answer: Any = answer, topics: Any = topics) -> list[bytes]:
            return [serialize_message(topic.make(header, answer)) for topic in topics.values()]

        made, _ = timed(messages)
        for name, value in zip(taken, (plain, given, ran, said, made)):
            taken[name].append(value)
    middle = {name: median(values[2:]) for name, values in taken.items()}
    around = middle['input'] + middle['answer'] + middle['messages']
    return {**{f'{name}_ms': value for name, value in middle.items()}, 'around_ms': around,
            'allowed_ms': middle['plain'] + SHARE * middle['inference'] + MILLISECONDS}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or '').strip().splitlines()[0])
    parser.add_argument('--repeats', type=int, default=40, help='frames of each')
    parser.add_argument('--json', type=result_file, help='write the figures here too')
    args = parser.parse_args()
    prepare_process(threads=1)
    results = {f'{name}, {"JPEG" if jpeg else "raw"}': measure(make, jpeg=jpeg, count=args.repeats)
               for name, make in (('detector', detector), ('segmenter', segmenter))
               for jpeg in (False, True)}
    columns = list(next(iter(results.values())))
    print_table(f'around an inference, {device_name()}', ['network'],
                [name.removesuffix('_ms') + ' ms' for name in columns],
                [[name, *(f'{row[column]:.2f}' for column in columns)]
                 for name, row in results.items()])
    if args.json:
        write_atomically(args.json, json.dumps(results, indent=2) + '\n')


if __name__ == '__main__':
    main()
