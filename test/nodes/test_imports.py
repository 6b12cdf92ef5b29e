# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A node imports what its system uses."""
from __future__ import annotations

from pathlib import Path
import subprocess
import sys

import pytest

COUNT = """
import importlib, pathlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
ours = {name: module for name, module in sys.modules.items()
        if name.startswith('intradp_ros.') and getattr(module, '__file__', None)}
ours = {name: module for name, module in ours.items()
        if name.split('.')[1] not in ('action', 'msg', 'srv')}
print(sum(len(pathlib.Path(module.__file__).read_text().splitlines())
          for name, module in ours.items() if not name.startswith('intradp_ros.systems.')))
print(*sorted(ours))
"""
DEVICE = 'intradp_ros.nodes.fleet.device_node'
#: Lines beside those of the system itself.
MOST = 15_000


@pytest.mark.parametrize('part', ['language.language_device', 'training.training_device'])
def test_a_device_of_one_system_imports_no_more_than_it_uses(part: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, '-c', COUNT, DEVICE, f'intradp_ros.nodes.{part}'],
                          capture_output=True, text=True, check=True, cwd=tmp_path)
    lines, names = done.stdout.splitlines()
    assert int(lines) <= MOST
    for room in ('intradp_ros.split.rules', 'intradp_ros.split.reductions',
                 'intradp_ros.graph.capture', 'intradp_ros.runtime.models.model'):
        assert room not in names.split()


def test_nodes_need_no_plotting_and_no_tables(tmp_path: Path) -> None:
    code = """
import importlib, sys
for name in ('matplotlib', 'jinja2', 'networkx', 'rich'):
    sys.modules[name] = None  # as if it were not installed
for name in sys.argv[1:]:
    importlib.import_module(name)
"""
    nodes = [f'intradp_ros.nodes.{name}' for name in (
        'sharing.inference_node', 'sharing.offload_node', 'sharing.planner_node',
        'fleet.device_node', 'fleet.coordinator_node', 'fleet.stage_device',
        'fleet.stage_coordination', 'language.language_node', 'language.language_device',
        'language.language_planning', 'training.trainer_node', 'training.training_device',
        'training.training_coordination', 'serving.gateway_node', 'serving.client_node')]
    done = subprocess.run([sys.executable, '-c', code, *nodes], capture_output=True, text=True,
                          cwd=tmp_path)
    assert done.returncode == 0, done.stderr
