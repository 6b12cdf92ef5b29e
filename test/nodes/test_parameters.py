# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Every parameter of every node: what it cannot be is refused at once, with its name and why."""
from __future__ import annotations

from importlib import import_module
import math
import os
from pathlib import Path
from typing import Any

import pytest
import rclpy
from rclpy.exceptions import InvalidParameterTypeException, InvalidParameterValueException
from rclpy.parameter import Parameter as RclParameter

from intradp_ros.core.plain_file import check_file, check_folder
from intradp_ros.nodes import node_modules
from intradp_ros.nodes.common.bond import BOND_PERIOD
from intradp_ros.nodes.common.lifecycle import AUTOSTART, ManagedNode
from intradp_ros.nodes.common.parameters import declare, naming, Parameter, read
from intradp_ros.nodes.common.prometheus import METRICS


def parameters_of(name: str) -> tuple[Parameter, ...]:
    module = import_module(node_modules()[name])
    [node] = [found for found in vars(module).values() if isinstance(found, type)
              and issubclass(found, ManagedNode) and found.__module__ == module.__name__]
    return (*node.PARAMETERS, *METRICS, AUTOSTART, BOND_PERIOD)


def impossible(parameter: Parameter) -> list[Any]:
    """Return values of another type, and numbers that are none or out of range."""
    value = parameter.default
    if isinstance(value, bool):
        return ['yes', 1]
    if isinstance(value, int):
        return ['1', 1.0, True, 2**62, -2**62]
    if isinstance(value, float):
        return ['1', 1, math.nan, math.inf, -math.inf, 1e300, -1e300]
    return [1, 1.5, True, ['a'] if isinstance(value, str) else 'a']


@pytest.mark.parametrize('name', sorted(node_modules()))
def test_a_value_that_cannot_be_is_refused_by_name(name: str, context: rclpy.Context) -> None:
    parameters = parameters_of(name)
    for turn in range(7):
        given = {p.name: values[turn] for p in parameters if turn < len(values := impossible(p))}
        if not given:
            continue
        node = rclpy.create_node(f'tried{turn}', context=context, parameter_overrides=[
            RclParameter(name, value=value) for name, value in given.items()])
        try:
            for parameter in parameters:
                if parameter.name in given:
                    with pytest.raises((InvalidParameterTypeException,
                                        InvalidParameterValueException)) as caught:
                        declare(node, [parameter])
                    said = str(caught.value)
                    assert parameter.name in said and str(given[parameter.name]) in said, said
                    assert 'expecting type' in said or 'Min' in said and 'Max' in said, said
        finally:
            node.destroy_node()


def test_files_and_folders_are_looked_at_before_work(context: rclpy.Context, tmp_path: Path,
                                                     ) -> None:
    os.mkfifo(tmp_path / 'pipe')
    (tmp_path / 'file').touch()
    bad = {check_file: [f'{tmp_path}/pipe', f'{tmp_path}/none', str(tmp_path), '/dev/zero', ' '],
           check_folder: [f'{tmp_path}/pipe', f'{tmp_path}/file', f'{tmp_path}/file/x',
                          '/dev/null/x', '/proc/x']}
    tried = 0
    every = {p.name: p for name in node_modules() for p in parameters_of(name)}.values()
    for parameter in every:
        for text in bad.get(parameter.check, []) if parameter.check else []:  # type: ignore
            tried += 1
            with pytest.raises(ValueError, match=f'^parameter {parameter.name}: {text}'):
                parameter.check_value(text)
    assert tried >= 75
    named = {p.name for p in every if p.description.lower().startswith(('file', 'a file'))}
    assert {p.name for p in every if p.check is check_file} >= named - {'labels'}
    node = rclpy.create_node('reader', context=context, parameter_overrides=[
        RclParameter('key_file', value=f'{tmp_path}/none')])
    [key] = [p for p in every if p.name == 'key_file']
    declare(node, [key])
    with pytest.raises(ValueError, match='parameter key_file: .*/none: No such file'):
        read(node, [key])
    node.destroy_node()


def test_names_are_looked_at_before_work() -> None:
    tried = 0
    for name in node_modules():
        for parameter in parameters_of(name):
            if parameter.name in ('server', 'device_name', 'coordinator_name', 'coordinators',
                                  'devices') and parameter.check:
                for text in ('a b', '/', 'é', 'a:b', '1', 'x\n'):
                    tried += 1
                    with pytest.raises(ValueError, match=f'parameter {parameter.name}: '):
                        parameter.check_value([text] if isinstance(parameter.default, list)
                                              else text)
                parameter.check_value(parameter.default)
    assert tried >= 42


def test_an_error_names_the_parameter_whose_value_it_is_about() -> None:
    model = Parameter('model', 'm', '')
    tasks = Parameter('tasks', [''], '')
    values = {'model': 'odd.graph', 'tasks': ['a.py:b']}
    assert naming('cannot read odd.graph', [model, tasks], values) \
        == 'parameter model: cannot read odd.graph'
    assert naming('there is no a.py:b', [model, tasks], values) \
        == 'parameter tasks: there is no a.py:b'
    assert naming('parameter tasks: no a.py:b', [model, tasks], values) \
        == 'parameter tasks: no a.py:b'
    assert naming('odd', [model, tasks], {'model': 'm', 'tasks': ['']}) == 'odd'
