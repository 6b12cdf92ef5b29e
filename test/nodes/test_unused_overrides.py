# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Overrides of parameters that have no effect are reported."""
from __future__ import annotations

from pathlib import Path

import pytest

from intradp_ros.nodes.common.unused_overrides import check_parameter_files, unused_overrides

DECLARED = {'model', 'mode', 'voxels.size_m'}
NODE = '/robot_1/inference_node'


def warnings_of(*arguments: str) -> list[str]:
    return list(unused_overrides(['node', '--ros-args', *arguments], NODE, DECLARED))


@pytest.mark.parametrize('key', ['/**', '/**/inference_node', '/robot_1/inference_node',
                                 '/robot_1/*', '/*/inference_node'])
def test_sections_for_the_node_are_found(key: str, tmp_path: Path) -> None:
    file = tmp_path / 'robot.yaml'
    file.write_text(f'{key}: {{ros__parameters: {{model: m, voxels: {{size_m: 1.0}}}}}}')
    assert warnings_of('--params-file', str(file)) == []
    file.write_text(f'{key}: {{ros__parameters: {{modell: m, use_sim_time: true}}}}')
    assert warnings_of('--params-file', str(file)) == [
        f'there is no parameter modell, which {file} sets: is model meant?']


def test_namespaces_may_be_nested(tmp_path: Path) -> None:
    file = tmp_path / 'robot.yaml'
    file.write_text('robot_1: {inference_node: {ros__parameters: {mode: local}}}')
    assert warnings_of('--params-file', str(file)) == []


@pytest.mark.parametrize('key', ['inference_node', '/robot_2/inference_node', '/**/detector'])
def test_a_file_for_another_node_is_reported(key: str, tmp_path: Path) -> None:
    file = tmp_path / 'robot.yaml'
    file.write_text(f'{key}: {{ros__parameters: {{model: m}}}}')
    [text] = warnings_of('--params-file', str(file))
    assert 'no parameters for /robot_1/inference_node' in text and key in text


def test_single_values() -> None:
    assert warnings_of('-p', 'mode:=local', '-p', 'qos_overrides./image.x:=1', '-r', 'a:=b') == []
    assert warnings_of('-p', 'inference_node:mode:=local', '-p', 'other:nonsense:=1') == []
    assert warnings_of('-p', 'nonsense:=1') == [
        'there is no parameter nonsense, which -p nonsense:=1 sets']
    assert list(unused_overrides(['node', '-p', 'nonsense:=1'], NODE, DECLARED)) == []


@pytest.mark.parametrize('text', [
    '/**: {ros__parameters: {model: m, model: n}}', '/**:\n  ros__parameters: {}\n/**: {}\n',
    'a: {b: {ros__parameters: {voxels: {size_m: 1.0, size_m: 2.0}}}}'])
def test_a_parameter_that_stands_twice_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / 'robot.yaml'
    file.write_text(text)
    with pytest.raises(ValueError, match=f'{file}: line [13]: a key stands twice: '):
        check_parameter_files(['node', '--ros-args', '--params-file', str(file)])
    for fine in ('a: {ros__parameters: {x: 1}}\nb: {ros__parameters: {x: 1}}', '[', '', '&a [*a]'):
        file.write_text(fine)
        check_parameter_files(['node', '--ros-args', '--params-file', str(file)])
    check_parameter_files(['node', '--params-file', str(tmp_path / 'none.yaml')])
