# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A robot that is slower than its profile reports it to the planner."""
from __future__ import annotations

from collections.abc import Iterator
import json
from pathlib import Path

from node_processes import DENSE, LATCHED, nodes, Observer, own_domain, picture
import pytest

from intradp_ros.core.limits import MAX_MODEL_TEXT as MOST
from intradp_ros.msg import OperatorProfile
from intradp_ros.wire.texts import unpacked

FASTER = 8.0


@pytest.fixture
def observer(tmp_path: Path) -> Iterator[Observer]:
    with own_domain(tmp_path, anew=True):
        observer = Observer()
        yield observer
        observer.close()


def test_a_slow_robot_publishes_its_profile_anew(observer: Observer, tmp_path: Path) -> None:
    profiles: list[dict[str, float]] = []

    def take(message: OperatorProfile) -> None:
        with observer.changed:
            profiles.append(json.loads(unpacked(message.profile, MOST)))
            observer.changed.notify_all()

    observer.node.create_subscription(OperatorProfile, 'operator_profiles', take, LATCHED)
    with nodes(tmp_path / 'logs') as started:
        robot = started.start('inference_node', {'model': DENSE})
        observer.wait(lambda: len(profiles) == 1, 'a profile')
        robot.stop()
        (kept,) = (tmp_path / 'cache' / 'profiles').glob('*.json')
        once = json.loads(kept.read_text())
        once.update(scale=once['scale'] / FASTER, whole_seconds=once['whole_seconds'] / FASTER)
        kept.write_text(json.dumps(once))
        started.start('inference_node', {'model': DENSE, 'mode': 'local', 'queue_size': 64})
        observer.wait(lambda: len(profiles) == 2, 'the profile of a faster robot')
        observer.meet_robot(picture(0))
        for number in range(60):
            observer.infer(picture(number))
            if len(profiles) > 2:
                break
        observer.wait(lambda: len(profiles) > 2, 'the profile of a robot that has become slow')
    assert profiles[1]['scale'] == pytest.approx(once['scale'])
    assert profiles[2]['scale'] > 3 * profiles[1]['scale']
    assert profiles[2]['timings'] == profiles[1]['timings']
