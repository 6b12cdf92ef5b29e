# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Overrides of parameters that have no effect are reported."""
from __future__ import annotations

from pathlib import Path

import pytest
import rclpy
from rclpy.context import Context

from intradp_ros.nodes.common.unused_overrides import (
    check_arguments,
    plain_words,
    unused_overrides,
)

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
        check_arguments(['node', '--ros-args', '--params-file', str(file)])
    for fine in ('a: {ros__parameters: {x: 1}}\nb: {ros__parameters: {x: [1, 2]}}', ''):
        file.write_text(fine)
        check_arguments(['node', '--ros-args', '--params-file', str(file)])


@pytest.mark.parametrize(('text', 'says'), [
    ('a: {ros__parameters: {x: [[b]]}}', 'line 1: x has no value that'),  # ROS would take b
    ('a: {ros__parameters: {x: [{y: 1}]}}', 'line 1: x has no value that'),  # and x.y
    ('a:\n  ros__parameters:\n    x: ~', 'line 3: x has no value that'),
    ('a:\n  ros__parameters:', 'line 2: write NODE:, below it ros__parameters:'),
    ('a: {x: 1}', 'line 1: write NODE:'), ('- 1', 'line 1: write NODE:'), ('[', 'no YAML: '),
    ('a: {ros__parameters: {x: &b 1, y: *b}}', r'line 1: ROS reads no \*b'),
    ('&a [*a]', r'line 1: ROS reads no \*a'), ('a: 1\n---\nb: 1', 'no YAML: ')])
def test_a_file_that_ros_misreads_is_refused_by_line(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / 'robot.yaml'
    file.write_text(text)
    with pytest.raises(ValueError, match=f'^{file}: {says}'):
        check_arguments(['node', '--ros-args', '--params-file', str(file)])


@pytest.mark.parametrize(('words', 'says'), [
    (['--junk'], 'unknown argument --junk: '), (['-p', 'x:=1'], 'unknown argument -p: '),
    (['--ros-args', '-p', 'x:=1', '--', 'y'], 'unknown argument y: '),
    (['--ros-args', '-p', 'x'], '-p x: write -p NAME:=VALUE'),
    (['--ros-args', '--remap', 'x'], '--remap x: write --remap NAME:=VALUE'),
    (['--ros-args', '--params-file', 'no.yaml'], 'no.yaml: No such file'),
    (['--ros-args', '--params-file', '/'], '/: is a folder')])
def test_words_that_nobody_takes_are_refused(words: list[str], says: str) -> None:
    check_arguments([])
    check_arguments(['node', '--ros-args', '-p', 'x:=1', '--', '--ros-args', '-r', 'a:=b'])
    with pytest.raises(ValueError, match=f'^{says}'):
        check_arguments(['node', *words])


@pytest.mark.parametrize(('words', 'says'), [
    (['--junk'], "unknown ROS arguments: ['--junk']"),
    (['--log-level', 'x'], "Couldn't parse log level: '--log-level x'. Error: Argument does not "
     'use a valid severity level')])
def test_what_ros_says_is_said_without_places_in_its_sources(words: list[str], says: str) -> None:
    with pytest.raises(RuntimeError) as refused:
        rclpy.init(args=['--ros-args', *words], context=Context())
    assert plain_words(refused.value) == says
    assert plain_words("failed to initialize logging: Failed to create log directory '/h/log': 30"
                       ) == "log directory '/h/log': Read-only file system: " \
                            'ROS_LOG_DIR names another one'
    assert plain_words('failed to initialize logging: Failed opening file /h/a.log for writing: '
                       'Read-only file system, at /x/rcl.c:99') == \
        'log file /h/a.log: Read-only file system: ROS_LOG_DIR names another folder'
