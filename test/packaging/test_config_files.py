# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""ROS reads the parameter files of the package; its parser takes less than YAML has."""
from __future__ import annotations

from pathlib import Path

import pytest
from rclpy.context import Context

FOLDER = Path(__file__).parents[2] / 'config'
FILES = [path for path in sorted(FOLDER.glob('*.yaml')) if 'ros__parameters' in path.read_text()]


@pytest.mark.parametrize('path', FILES, ids=lambda path: path.name)
def test_ros_reads_a_parameter_file(path: Path) -> None:
    context = Context()
    context.init(['--ros-args', '--params-file', str(path)])
    context.try_shutdown()


def test_what_ros_cannot_read_is_found(tmp_path: Path) -> None:
    """A colon in a list without quotes, which other parsers of YAML take."""
    assert len(FILES) >= 5
    path = tmp_path / 'wrong.yaml'
    path.write_text('/**:\n  ros__parameters:\n    tasks: [a.b:c]\n')
    with pytest.raises(Exception, match="Couldn't parse params file"):
        Context().init(['--ros-args', '--params-file', str(path)])
