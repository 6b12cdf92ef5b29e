# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Times of batches while several executors compute at once."""
import threading
import time

import pytest

from intradp_ros.cli.main import main
from intradp_ros.runtime.models.catalogue import ModelSpecError
from intradp_ros.systems.serving.executor import EmulatedExecutor
from intradp_ros.systems.serving.executor_messages import BatchResult
from intradp_ros.systems.serving.service import parse_services
from intradp_ros.systems.serving.side_by_side import measured_together

SERVICE, = parse_services("""
services:
  policy:
    model: emulated
    deadline: 1 s
    inputs: {image: uint8 4, state: float32 2}
    outputs: {actions: float32 3}
    seconds: {1: 4 ms, 2: 6 ms}
""")


class OneDevice(EmulatedExecutor):
    """Executors that wait for each other, as those of a device that computes one at a time."""

    device, most, running = threading.Lock(), 0, 0

    def run(self, number, service, rows):
        def compute():
            begun = time.monotonic()
            OneDevice.running += 1
            OneDevice.most = max(OneDevice.most, OneDevice.running)
            with OneDevice.device:
                time.sleep(SERVICE.seconds[len(rows) - 1])
            OneDevice.running -= 1
            self._listener.ended(self._number, BatchResult(
                number, time.monotonic() - begun, [{}] * len(rows), [''] * len(rows)))
        threading.Thread(target=compute).start()


def started(kind):
    return lambda number, services, heard, **_: kind(number, services, heard)


def test_what_shares_a_device_takes_longer_at_once():
    alone, both = (measured_together(SERVICE, tasks, start=started(OneDevice))
                   for tasks in (1, 2))
    assert OneDevice.most == 2 and alone.sizes == both.sizes == (1, 2)
    for a, b, told in zip(alone.seconds, both.seconds, SERVICE.seconds):
        assert told <= a < b and b > 1.5 * told


def test_a_model_that_does_not_load_is_said():
    class Failing(EmulatedExecutor):
        def _work(self):
            self._listener.failed(self._number, 0, 'no such model')
    with pytest.raises(ModelSpecError, match='no such model'):
        measured_together(SERVICE, 2, start=started(Failing))


@pytest.mark.parametrize('count', ['0', 'many', '65', '-1'])
def test_executors_are_a_number_or_auto(count, tmp_path, capsys):
    (file := tmp_path / 'file.yaml').touch()
    assert main(['serve', 'plan', '--fleet', str(file), '--services', str(file), '--executors',
                 count]) != 0
    assert '--executors: ' in capsys.readouterr().err
