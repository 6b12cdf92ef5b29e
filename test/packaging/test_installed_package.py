# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The installed package is the one under test, is whole, and carries the messages."""
from __future__ import annotations

import importlib
from importlib.metadata import version
import os
from pathlib import Path
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from rclpy.serialization import deserialize_message, serialize_message

import intradp_ros
from intradp_ros.msg import TensorChunk

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(intradp_ros.__file__).parent
NODES = sorted(ROOT.glob('intradp_ros/nodes/*/*_node.py'))


def python_files(package: Path) -> dict[Path, bytes]:
    """Return the Python files below a directory with their contents."""
    return {path.relative_to(package): path.read_bytes() for path in package.rglob('*.py')}


def test_the_source_tree_does_not_shadow_the_installed_package() -> None:
    assert ROOT / 'intradp_ros' not in (PACKAGE, *PACKAGE.parents), (
        'the tests imported the source tree; run them as `make check`, or as `.venv/bin/pytest` '
        '(not `python -m pytest`, and without PYTHONPATH)')


def test_what_is_installed_is_what_the_source_tree_has() -> None:
    installed = {path: text for path, text in python_files(PACKAGE).items()
                 if path.parts[0] not in ('action', 'msg', 'srv')}
    assert installed == python_files(ROOT / 'intradp_ros'), 'run `make build`'


def test_messages_keep_their_contents_through_serialisation() -> None:
    chunk = TensorChunk(session=2**63, chunk=7, shape=[1, 3, 5], data=bytes(range(15)))
    assert deserialize_message(serialize_message(chunk), TensorChunk) == chunk


@pytest.mark.parametrize('node', NODES, ids=lambda path: path.stem)
def test_nodes_are_executables_that_ros_finds(node: Path) -> None:
    executable = Path(sys.prefix, 'lib', 'intradp_ros', node.stem)
    assert os.access(executable, os.X_OK)
    interpreter = executable.read_text().splitlines()[0].removeprefix('#!')
    assert Path(interpreter).samefile(sys.executable)
    module = importlib.import_module(f'intradp_ros.nodes.{node.parent.name}.{node.stem}')
    assert callable(module.main)


def test_the_ament_index_lists_the_package_and_its_messages() -> None:
    index = Path(sys.prefix, 'share', 'ament_index', 'resource_index')
    assert (index / 'packages' / 'intradp_ros').is_file()
    listed = (index / 'rosidl_interfaces' / 'intradp_ros').read_text().split()
    assert {f'msg/{path.name}' for path in ROOT.glob('msg/*.msg')} <= set(listed)


def contents(root: Path, pattern: str) -> dict[Path, bytes]:
    """Return what is in the files below a folder that match."""
    return {path.relative_to(root): path.read_bytes()
            for path in root.glob(pattern) if path.is_file()}


def test_launch_and_parameter_files_are_installed() -> None:
    share = Path(sys.prefix, 'share', 'intradp_ros')
    for pattern in ('launch/*.py', 'config/**/*'):
        sources = contents(ROOT, pattern)
        assert sources
        assert sources == contents(share, pattern)


def test_all_places_name_the_same_version() -> None:
    declared = ElementTree.parse(ROOT / 'package.xml').findtext('version')
    assert declared == version('intradp-ros') == intradp_ros.__version__
