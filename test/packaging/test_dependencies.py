# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What is imported is named wherever somebody learns what to install, in one version."""
from __future__ import annotations

import ast
from collections.abc import Iterator
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from requirements import declared, lowest, requirements, ROOT

from intradp_ros.cli.machine_checks import FLOORS
from intradp_ros.core import extras

DECLARED = declared()
#: Modules that their package on PyPI, or rosdep, calls otherwise.
PIP = {'cv2': 'opencv-python-headless', 'PIL': 'pillow', 'yaml': 'pyyaml', 'markupsafe': 'jinja2',
       'google': 'protobuf', 'rerun': 'rerun-sdk', 'grpc': 'grpcio',
       'h11': 'uvicorn', 'pydantic': 'fastapi', 'sklearn': 'scikit-learn',
       'starlette': 'fastapi'}
ROSDEP = {'cv2': 'opencv', 'PIL': 'pil', 'markupsafe': 'jinja2'}
#: Comes with an installation of ROS, and from no wheel.
ROS_ONLY = {'launch', 'launch_ros', 'sensor_msgs_py'}
#: Where rqt is installed they are there; no robot needs them.
OF_RQT = {'python_qt_binding', 'qtpy', 'rqt_gui_py'}
#: Of a part that not all install: the extra that brings it.
EXTRAS = {'fastapi': 'web', 'gguf': 'language', 'google': 'serving', 'grpc': 'serving',
          'h11': 'web', 'hpack': 'serving', 'msgpack': 'serving', 'pydantic': 'web', 'ray': 'ray',
          'rerun': 'rerun', 'rosbags': 'training', 'starlette': 'web',
          'tensorboard': 'tensorboard', 'uvicorn': 'web', 'websockets': 'web'}


def name_of(requirement: str) -> str:
    return re.split(r'[<>=\[; ]', requirement, maxsplit=1)[0]


def imported(package: str) -> Iterator[str]:
    """Yield the modules of others that a package imports, also on the way."""
    for path in ROOT.glob(f'{package}/**/*.py'):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (alias.name.split('.')[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                yield node.module.split('.')[0]


#: The second is known to type checkers alone.
OURS = {*sys.stdlib_module_names, '_typeshed', 'intradp_ros', 'intradp_lab'}
MODULES = sorted({*imported('intradp_ros')} - OURS - OF_RQT)
OF_LAB = sorted({*imported('intradp_lab')} - OURS - {*MODULES} - {'setuptools', 'ultralytics'})


def test_messages_name_the_packages_of_extras() -> None:
    """This package is on no index, so its extras cannot be installed by its name."""
    for extra, packages in extras.EXTRAS.items():
        assert list(packages) == requirements(DECLARED, extra)
    assert extras.pip_install('web').startswith("pip install 'fastapi>=")


def test_documents_install_what_extras_name() -> None:
    """In the same versions; the package itself is on no index yet."""
    named = {package for packages in extras.EXTRAS.values() for package in packages}
    for path in (ROOT / 'README.md', *(ROOT / 'doc').rglob('*.md')):
        text = path.read_text()
        assert set(re.findall(r"'([a-z][a-z0-9-]*>=[0-9.]+)'", text)) <= named, path
        assert 'intradp-ros[' not in text, path


def test_the_modules_are_found() -> None:
    assert {'torch', 'rclpy', 'cv2', 'yaml', 'launch'} <= {*MODULES}
    assert {'h5py', 'jinja2'} <= {*OF_LAB}


@pytest.mark.parametrize('module', [*MODULES, 'vision_msgs'])
def test_what_is_imported_is_named(module: str) -> None:
    """By pyproject.toml for pip; for a workspace by package.xml, or by requirements.txt."""
    manifest = {element.text for element in ElementTree.parse(ROOT / 'package.xml').iter()
                if element.tag in ('depend', 'exec_depend')}
    lines = (ROOT / 'requirements.txt').read_text().splitlines()
    by_pip = {name_of(line) for line in lines if not line.startswith('#')}
    wheels = {name_of(each) for each in requirements(DECLARED, 'run')}
    pip = PIP.get(module, module)
    if module in EXTRAS:
        assert pip in {name_of(each) for each in requirements(DECLARED, EXTRAS[module])}
        return
    if module not in ROS_ONLY | {'vision_msgs'}:
        assert {pip, 'ros-kilted-' + module.replace('_', '-')} & wheels
    assert {module, f'python3-{ROSDEP.get(module, module)}'} & manifest or pip in by_pip


@pytest.mark.parametrize('module', OF_LAB)
def test_what_the_laboratory_imports_is_named(module: str) -> None:
    named = {name_of(each) for each in requirements(DECLARED, 'lab')}
    assert PIP.get(module, module) in named


@pytest.mark.parametrize('module', ['matplotlib', 'jinja2', 'networkx', 'rich'])
def test_no_robot_has_to_have_what_only_commands_import(module: str) -> None:
    assert module not in (ROOT / 'package.xml').read_text()


def test_all_places_state_the_same_lowest_versions() -> None:
    stated = {name_of(each): each for each in requirements(DECLARED, 'run')}
    for line in (ROOT / 'requirements.txt').read_text().splitlines():
        assert line.startswith('#') or line == stated[name_of(line)]
    for name, floor in FLOORS.items():
        assert stated[name] == f'{name}>={".".join(map(str, floor))}'


def test_the_lowest_versions_are_given_to_pip() -> None:
    lines = subprocess.run([sys.executable, ROOT / 'tools' / 'requirements.py', '--lowest', 'run'],
                          capture_output=True, text=True, check=True).stdout.split()
    assert f'torch=={".".join(map(str, FLOORS["torch"]))}' in lines
    assert not any('ros-' in line for line in lines)
    assert lowest('a-b>=1.2') == 'a-b==1.2' and lowest('a-b') is None
