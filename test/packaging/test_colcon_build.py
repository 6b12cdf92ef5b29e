# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
`colcon build`, with and without symlinks, gives a package that works; `colcon test` runs.

And robot, server and planner of a workspace share an inference.  All of it is slow: messages are
compiled anew, by the CMakeLists.txt by which `make build` has compiled what is tested.
"""
from __future__ import annotations

import json
import os
from pathlib import Path
import re
import shutil
import subprocess
import sys
from typing import Any, NamedTuple

from node_processes import domain_of_process, QUICK_PLANNER
import pytest

from intradp_lab.emulation.processes import Child, starter
from intradp_ros.core.processes import Command

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
SOURCES = ('CMakeLists.txt', 'LICENSE', 'action', 'cmake', 'config', 'intradp_ros', 'launch',
           'msg', 'package.xml', 'plugin.xml', 'pyproject.toml', 'setup.py', 'src', 'srv', 'test',
           'tools')
EXECUTABLES = ('bin/intradp', *(f'lib/intradp_ros/{path.stem}'
                                for path in sorted(ROOT.glob('intradp_ros/nodes/*/*_node.py'))))

# Run in the environment of the workspace: imports, one message through DDS's type support.
PROBE = """
import json
import intradp_ros, intradp_ros.graph.operator_graph, intradp_ros.msg, rclpy
from ament_index_python.packages import get_package_prefix

rclpy.init()
node = rclpy.create_node('probe')
publisher = node.create_publisher(intradp_ros.msg.TensorChunk, 'chunks', 1)
publisher.publish(intradp_ros.msg.TensorChunk(chunk=7))
node.destroy_node()
rclpy.shutdown()
print(json.dumps({
    'prefix': get_package_prefix('intradp_ros'),
    'package': intradp_ros.__file__,
    'messages': intradp_ros.msg.__file__,
    'graph': intradp_ros.graph.operator_graph.__file__,
    'version': intradp_ros.__version__,
}))
"""

# Run in the environment of the workspace, with the folder of tests: publishes images until the
# server takes part in the answer to one; each answer is compared with the undivided model's.
SHARING = """
import json, sys

sys.path.append(sys.argv[1])
from node_processes import Observer, picture
from intradp_ros.perception.oriented_energy import oriented_energy

observer = Observer()
assert observer.set_mode('offload')[0]
stats = observer.infer_until(picture(0, 144, 336), oriented_energy(), lambda s: s.shared)
observer.close()
print(json.dumps({'shared': stats.shared, 'up': stats.bytes_up, 'down': stats.bytes_down}))
"""
# Nodes and the parameter files that the launch files give them.
NODES = {'offload_node': 'server.yaml', 'planner_node': 'planner.yaml',
         'inference_node': 'robot.yaml'}
TIMEOUT = 180.0

# Laid next to the tests of a room: fails unless what colcon installed is imported.
IMPORTS = """
from pathlib import Path
import intradp_ros


def test_what_is_imported():
    assert Path({prefix!r}) in Path(intradp_ros.__file__).parents
"""


class Workspace(NamedTuple):
    """A built colcon workspace and how it was built."""

    path: Path
    symlinks: bool

    @property
    def prefix(self) -> Path:
        """Where colcon installed the package."""
        return self.path / 'install' / 'intradp_ros'


def environment(**further: str) -> dict[str, str]:
    """
    Return what a shell has in which just the virtual environment was activated.

    Of this process's own environment, the library path and its guard come from the ROS wheels,
    which set both at the start of every interpreter, and the flags from make.
    """
    inherited = {name: os.environ[name] for name in ('HOME', 'LANG', 'TMPDIR')
                 if name in os.environ}
    search = [str(Path(sys.prefix, 'bin')), os.environ.get('PATH', os.defpath)]
    return {**inherited, 'PATH': os.pathsep.join(search), 'VIRTUAL_ENV': sys.prefix,
            'ROS_AUTOMATIC_DISCOVERY_RANGE': 'OFF', **further}


def run(*command: str, cwd: Path, **further: str) -> str:
    """Run a command; return its output, or fail with all of it."""
    done = subprocess.run(command, cwd=cwd, env=environment(**further), timeout=600, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        pytest.fail(f'{command} ended with {done.returncode}:\n{done.stdout}', pytrace=False)
    return done.stdout


@pytest.fixture(scope='module', params=[False, True], ids=['copies', 'symlinks'])
def workspace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory,
              ) -> Workspace:
    """Build the package in a workspace of its own."""
    path = tmp_path_factory.mktemp('workspace')
    package = path / 'src' / 'intradp_ros'
    package.mkdir(parents=True)
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, package / name)
    run('colcon', 'build', *['--symlink-install'] * request.param, cwd=path)
    return Workspace(path, request.param)


def sourced(workspace: Workspace, *command: str) -> tuple[str, ...]:
    """Return what runs a command in the environment that the workspace's set-up script makes."""
    return ('sh', '-c', f'. "{workspace.path}/install/setup.sh" && exec "$@"', 'sh', *command)


def in_workspace(workspace: Workspace, *command: str, **further: str) -> str:
    """Run a command in the environment of the workspace, to its end."""
    return run(*sourced(workspace, *command), cwd=workspace.path, **further)


def test_messages_and_modules_are_imported_side_by_side(workspace: Workspace) -> None:
    found: dict[str, Any] = json.loads(
        in_workspace(workspace, 'python', '-c', PROBE).splitlines()[-1])
    assert Path(found['prefix']) == workspace.prefix
    for module in ('package', 'messages', 'graph'):
        assert workspace.prefix in Path(found[module]).parents
    assert Path(found['graph']).is_symlink() == workspace.symlinks


def test_the_kernels_of_language_models_are_compiled(workspace: Workspace) -> None:
    name = in_workspace(workspace, 'python', '-c',
                        'from intradp_ros.systems.language.kernels import kernels\n'
                        'print(kernels().name)').splitlines()[-1]
    assert name in ('avx512', 'avx2', 'neon', 'portable')


def test_the_written_init_wins_over_the_generated_one(workspace: Workspace) -> None:
    [installed] = workspace.prefix.glob('lib/**/intradp_ros/__init__.py')
    assert installed.read_bytes() == (ROOT / 'intradp_ros' / '__init__.py').read_bytes()


@pytest.mark.parametrize('name', EXECUTABLES)
def test_executables_are_installed(workspace: Workspace, name: str) -> None:
    executable = workspace.prefix / name
    assert os.access(executable, os.X_OK)
    interpreter = executable.read_text().splitlines()[0].removeprefix('#!')
    assert Path(interpreter).samefile(sys.executable)


def test_the_command_line_starts(workspace: Workspace) -> None:
    assert 'usage' in in_workspace(workspace, 'intradp', '--help').lower()


def colcon_tested(workspace: Workspace, room: str, prefix: Path) -> tuple[int, str]:
    """Run `colcon test` for a room, and a test that is laid next to it; return what came out."""
    planted = workspace.path / 'src' / 'intradp_ros' / 'test' / room / 'test_planted.py'
    planted.write_text(IMPORTS.format(prefix=str(prefix)))
    run('colcon', 'test', '--ctest-args', '--tests-regex', f'^{room}$', cwd=workspace.path)
    done = subprocess.run(['colcon', 'test-result', '--verbose'], cwd=workspace.path, text=True,
                          env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    planted.unlink()
    return done.returncode, done.stdout


def test_the_rooms_are_tests_of_colcon(workspace: Workspace) -> None:
    """They test what the workspace has installed, and colcon says when one fails."""
    status, reported = colcon_tested(workspace, 'power', workspace.prefix)
    count = int(re.search(r'(\d+) tests?, 0 errors, 0 failures', reported)[1])
    assert status == 0 and count > 5, reported
    status, reported = colcon_tested(workspace, 'power', workspace.path / 'elsewhere')
    assert status == 1 and 'test_what_is_imported' in reported, reported


def test_nodes_of_the_workspace_share(workspace: Workspace, tmp_path: Path) -> None:
    """What `ros2 run` would start, with the default model: images are answered by both sides."""
    variables = {
        'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST', 'OMP_NUM_THREADS': '1',
        'ROS_DOMAIN_ID': domain_of_process(),
        'INTRADP_CACHE': str(tmp_path / 'cache'), 'ROS_LOG_DIR': str(tmp_path / 'ros')}
    nothing_else = ('env', '-i', *(f'{k}={v}' for k, v in environment(**variables).items()))
    further = {'planner_node': [word for name, value in QUICK_PLANNER.items()
                                for word in ('-p', f'{name}:={value}')]}

    def command(name: str) -> Command:
        parameters = workspace.prefix / 'share' / 'intradp_ros' / 'config' / NODES[name]
        return Command(name, [*nothing_else, *sourced(
            workspace, f'{workspace.prefix}/lib/intradp_ros/{name}',
            '--ros-args', '--params-file', str(parameters), *further.get(name, ()))])

    with starter(tmp_path) as start:
        children: list[Child] = [start(command(name)) for name in NODES]
        for child in children:
            child.wait_for_line(': active$', TIMEOUT)
        reported = json.loads(in_workspace(
            workspace, 'python', '-c', SHARING, str(ROOT / 'test'), **variables).splitlines()[-1])
    assert reported['shared'] and reported['up'] > 0 and reported['down'] > 0
