# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Networks and tasks of users may import torchvision by themselves, next to a CPU build too."""
from __future__ import annotations

import subprocess
import sys

import pytest

USER = """
import torchvision
def net(): return torchvision.models.mobilenet_v3_small()
"""

LOADS = """
import importlib.util, sys
if importlib.util.find_spec('torchvision') is None:
    sys.exit(5)
from intradp_ros.runtime.models.catalogue import load_factory
from intradp_ros.systems.training.base.task import load_task, TaskError
if sys.argv[1] == 'network':
    load_factory('user_nets:net')
else:
    try:
        load_task('user_nets.py:net')
    except TaskError as error:
        assert 'returned MobileNetV3, not a TrainingTask' in str(error), error
"""


@pytest.mark.parametrize('what', ['network', 'task'])
def test_code_of_users_may_import_torchvision(tmp_path, what):
    (tmp_path / 'user_nets.py').write_text(USER)
    done = subprocess.run([sys.executable, '-c', LOADS, what], cwd=tmp_path, text=True,
                          capture_output=True, timeout=120)
    if done.returncode == 5:
        pytest.skip('torchvision is not installed')
    assert done.returncode == 0, done.stderr
