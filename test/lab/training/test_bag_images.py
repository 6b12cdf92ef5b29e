# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Images of bags as samples: the same ones whoever takes them, and what is wrong is named."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
import hashlib
import json
from pathlib import Path
import pickle
import subprocess
import sys
from typing import Any

import cv2
import numpy as np
import pytest
from rclpy.serialization import serialize_message
from rosbags.rosbag2 import StoragePlugin, Writer
from sensor_msgs.msg import CompressedImage, Image
import torch
from vision_msgs.msg import (
    Classification,
    Detection2D,
    Detection2DArray,
    ObjectHypothesis,
    ObjectHypothesisWithPose,
)

from intradp_ros.nodes.common.bags import bag_types
from intradp_ros.nodes.sensors.image_messages import rgb_to_image
from intradp_ros.nodes.training.bag_images import (
    BagImages,
    labels_of_csv,
    labels_of_topic,
    likeliest,
)
from intradp_ros.systems.training.base.items import Items
from intradp_ros.systems.training.base.task import TaskError

TOPIC, FIRST = '/camera/image_raw', 1_700_000_000
SQLITE, MCAP = StoragePlugin.SQLITE3, StoragePlugin.MCAP


def pixels(number: int) -> Any:
    return np.random.default_rng(number).integers(0, 256, (24, 32, 3), np.uint8)


def raw(number: int) -> Image:
    return rgb_to_image(pixels(number))


def compressed(number: int) -> CompressedImage:
    done, data = cv2.imencode('.png', pixels(number)[:, :, ::-1])
    assert done
    return CompressedImage(format='rgb8; png compressed bgr8', data=data.tobytes())


def stamped(message: Any, number: int) -> Any:
    message.header.stamp.sec, message.header.stamp.nanosec = FIRST + number // 10, number % 10
    return message


def stamp(number: int) -> int:
    return (FIRST + number // 10) * 10**9 + number % 10


def record(bag: Path, topics: dict[str, Sequence[tuple[int, Any]]],
           storage: StoragePlugin = SQLITE) -> Path:
    """Write messages, each with its number, in the order given."""
    with Writer(bag, version=9, storage_plugin=storage) as writer:
        for topic, messages in topics.items():
            module, _, name = type(messages[0][1]).__module__.split('.')[0], '', \
                type(messages[0][1]).__name__
            kind = f'{module}/msg/{name}'
            connection = writer.add_connection(topic, kind, typestore=bag_types())
            for when, (number, message) in enumerate(messages):
                writer.write(connection, FIRST * 10**9 + when // 2,  # two arrive at a time
                             serialize_message(stamped(message, number)))
    return bag


#: Takes all items in a new process, and in a child that is forked from it.
ELSEWHERE = """
import hashlib, os, pickle, sys
data = pickle.load(open(sys.argv[1], 'rb'))
def take():
    for image, label in data:
        print(hashlib.sha256(image.numpy().tobytes() + bytes([label])).hexdigest(), flush=True)
take()
if not (child := os.fork()):
    take()
    os._exit(0)
sys.exit(os.waitpid(child, 0)[1])
"""


def elsewhere(data: BagImages, folder: Path) -> list[str]:
    """Return what other processes take, or what they say at their end."""
    (folder / 'data').write_bytes(pickle.dumps(data))
    done = subprocess.run([sys.executable, '-c', ELSEWHERE, folder / 'data'], text=True,
                          timeout=200, capture_output=True)
    return done.stdout.split() if not done.returncode else [done.stderr]


def digest_of(data: BagImages, number: int) -> str:
    image, label = data[number]
    return hashlib.sha256(image.numpy().tobytes() + bytes([label])).hexdigest()


@pytest.mark.parametrize('storage', [SQLITE, MCAP])
@pytest.mark.parametrize('make', [raw, compressed])
def test_an_item_is_the_same_whenever_and_wherever_it_is_taken(
        tmp_path: Path, storage: StoragePlugin, make: Callable[[int], Any]) -> None:
    order = [3, 0, 7, 1, 2, 9, 5, 4, 6, 8, 2]  # as they arrive; one twice
    bag = record(tmp_path / 'bag', {TOPIC: [(n, make(n)) for n in order],
                                    '/other': [(n, raw(n + 100)) for n in order]}, storage)
    labels = {stamp(n): n % 3 for n in range(10) if n != 4}
    data = BagImages(bag, TOPIC, labels, (24, 32))
    assert list(data.stamps) == sorted(labels) and len(data) == 9
    for number, n in enumerate((0, 1, 2, 3, 5, 6, 7, 8, 9)):
        image, label = data[number]
        assert image.dtype is torch.uint8 and label == n % 3
        assert np.array_equal(image.permute(1, 2, 0).numpy(), pixels(n))
    wanted = [digest_of(data, n) for n in range(9)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(digest_of, 36 * [data], 4 * [*range(9)])) == 4 * wanted
    assert elsewhere(data, tmp_path) == wanted + wanted
    assert wanted == [digest_of(BagImages(bag, TOPIC, labels, (24, 32)), n) for n in range(9)]
    inputs, targets = Items(data).take([8, 0])
    assert inputs[0].shape == (2, 3, 24, 32) and targets.tolist() == [0, 0]
    small = BagImages(bag, TOPIC, labels, (12, 16), dtype=torch.float32)[0][0]
    assert small.shape == (3, 12, 16) and 0 <= float(small.min()) < float(small.max()) <= 1


def test_labels_come_from_a_table(tmp_path: Path) -> None:
    path = tmp_path / 'labels.csv'
    path.write_text('stamp,label\n1700000000.000000001,door\n1700000001000000002, 1\n'
                    '1700000002.5,floor\n')
    assert labels_of_csv(path, ['floor', 'door']) == {
        stamp(1): 1, stamp(12): 1, (FIRST + 2) * 10**9 + 5 * 10**8: 0}
    path.write_text('sec,nanosec,label\n1700000001,2,7\n')
    assert labels_of_csv(path) == {stamp(12): 7}
    for text, reason in (('', '{}'), ('time,label\n1,2\n', 'first line'),
                         ('stamp,label\n1,door\n', 'line 2: .*door'),
                         ('stamp,label\n1\n', 'first line'),
                         ('stamp,label\n1,2\n1.0e9,2\n', 'line 3: .*not a stamp'),
                         ('stamp,label\n1.0123456789,2\n', 'not a stamp')):
        path.write_text(text)
        if not text:
            assert labels_of_csv(path) == {}
            continue
        with pytest.raises(TaskError, match=reason):
            labels_of_csv(path)
    with pytest.raises(TaskError, match='cannot be read'):
        labels_of_csv(tmp_path / 'none.csv')


def test_labels_come_from_the_answers_of_a_larger_network(tmp_path: Path) -> None:
    def hypotheses(n: int) -> list[ObjectHypothesis]:
        return [ObjectHypothesis(class_id='floor', score=0.3),
                ObjectHypothesis(class_id='door', score=n / 10)]
    bag = record(tmp_path / 'bag', {
        TOPIC: [(n, raw(n)) for n in range(10)],
        'said': [(n, Classification(results=hypotheses(n))) for n in range(10)],
        'seen': [(n, Detection2DArray(detections=[Detection2D(results=[
            ObjectHypothesisWithPose(hypothesis=each)]) for each in hypotheses(n)]))
            for n in range(10)]}, MCAP)
    wanted = {stamp(n): int(n > 3) for n in range(10)}
    for topic in ('said', 'seen'):
        assert labels_of_topic(bag, topic, likeliest(['floor', 'door'])) == wanted
        sure = labels_of_topic(bag, topic, likeliest(['floor', 'door'], 0.75))
        assert sure == {stamp(8): 1, stamp(9): 1}
    assert len(BagImages(bag, TOPIC, sure, (24, 32))) == 2
    with pytest.raises(TaskError, match="'door'.*neither a number nor one of the names"):
        labels_of_topic(bag, 'said', likeliest(['floor', 'gate']))


def test_what_is_wrong_with_a_bag_is_named(tmp_path: Path) -> None:
    broken = compressed(1)
    broken.data = broken.data[:60]
    labels = {stamp(n): n for n in range(4)}
    bag = record(tmp_path / 'bag', {
        TOPIC: [(0, compressed(0)), (1, broken)], '/said': [(0, Classification())]})
    data = BagImages(bag, TOPIC, labels, (24, 32))
    assert data[0][1] == 0
    with pytest.raises(TaskError, match=f'{stamp(1)} ns on {TOPIC}.*leave its label out'):
        data[1]
    for change, reason in (
            ({'topic': '/camera'}, 'has no /camera; it has /camera/image_raw'),
            ({'topic': '/said'}, 'of one type that is known here .vision_msgs'),
            ({'labels': {}}, 'none of 2 images .*has a label'),
            ({'bag': tmp_path / 'none'}, 'none cannot be read as a bag'),
            ({'size': (0, 3)}, 'size is'), ({'image_bits': 20}, 'image_bits')):
        with pytest.raises(TaskError, match=reason):
            BagImages(**{'bag': bag, 'topic': TOPIC, 'labels': labels, 'size': (24, 32),
                         **change})  # type: ignore[arg-type]
    for storage, name in ((SQLITE, 'bag.db3'), (MCAP, 'bag.mcap')):
        cut = record(tmp_path / storage.name / 'bag',
                     {TOPIC: [(n, raw(n)) for n in range(9)]}, storage)
        assert len(BagImages(cut / name, TOPIC, labels, (24, 32))) == 4  # one file alone
        whole = (cut / name).read_bytes()
        for length in (0, 5, len(whole) // 2):
            (cut / name).write_bytes(whole[:length])
            with pytest.raises(TaskError, match='cannot be read as a bag'):
                BagImages(cut, TOPIC, labels, (24, 32))


def test_what_brings_rosbags_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'rosbags.rosbag2', None)  # as if it were not installed
    for read in (lambda: BagImages(tmp_path, TOPIC, {}, (8, 8)),
                 lambda: labels_of_topic(tmp_path, TOPIC, likeliest())):
        with pytest.raises(TaskError, match="pip install 'rosbags"):
            read()


def test_a_bag_that_is_recorded_anew_is_noticed(tmp_path: Path) -> None:
    labels = {stamp(n): n for n in range(4)}
    bag = record(tmp_path / 'bag', {TOPIC: [(n, raw(n)) for n in range(4)]})
    data = BagImages(bag, TOPIC, labels, (24, 32))
    other = record(tmp_path / 'other', {TOPIC: [(n, raw(n)) for n in range(4, 8)]})
    (bag / 'bag.db3').unlink()
    (other / 'other.db3').rename(bag / 'bag.db3')
    assert 'recorded anew' in elsewhere(data, tmp_path)[0]


TASK = """
from pathlib import Path
import torch
from intradp_ros.nodes.training.bag_images import BagImages, labels_of_csv
from intradp_ros.systems.training.base.items import Items
from intradp_ros.systems.training.base.task import TrainingTask

class Bright(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(),
                                        torch.nn.Conv2d(4, 3, 3))
    def forward(self, pixels):
        return self.body(pixels.float() / 255).mean((2, 3))

def task():
    day = Items(BagImages('bag', '/camera/image_raw', labels_of_csv('labels.csv'), (12, 16)))
    return TrainingTask(
        Bright(), lambda y, t: torch.nn.functional.cross_entropy(y, t, reduction='none'),
        lambda named: torch.optim.SGD([p for _, p in named], lr=0.1), day, check=day,
        batch=8, grain=2, micro_batches=2, rounds=4)
"""


def test_two_devices_train_on_a_bag_as_one_process_does(tmp_path: Path) -> None:
    record(tmp_path / 'bag', {TOPIC: [(n, raw(n)) for n in range(20)]}, MCAP)
    lines = [f'{stamp(n)},{n % 3}' for n in range(20)]
    (tmp_path / 'labels.csv').write_text('\n'.join(['stamp,label', *lines]))
    (tmp_path / 'tasks.py').write_text(TASK)
    (tmp_path / 'fleet.yaml').write_text(
        'devices: {a: {memory: 1 GB}, b: {memory: 1 GB}}\n'
        'networks: {n: {access point: 1 Gbit/s, devices: [a, b]}}\n')
    runs = []
    for fleet in ([], ['--fleet', 'fleet.yaml']):
        done = subprocess.run(
            [Path(sys.executable).parent / 'intradp', 'train', 'run', 'tasks.py:task', *fleet,
             '--json', '-o', f'{len(runs)}.safetensors'], cwd=tmp_path, text=True, timeout=200,
            capture_output=True)
        assert done.returncode == 0, done.stdout + done.stderr
        runs.append(json.loads(done.stdout))
    assert all(run['done'] for run in runs)
    assert runs[0]['loss'] == pytest.approx(runs[1]['loss'], rel=1e-6)
