# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a node is started with and does not take: words and files of ROS, undeclared names."""
from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
import os
from pathlib import Path
import re
from typing import Any

import yaml

from intradp_ros.core.json_text import read_text
from intradp_ros.core.yaml_text import parse_yaml

#: Declared by rclpy for every node, and for topics whose QoS may be overridden.
_OTHERS = re.compile(r'use_sim_time|start_type_description_service|qos_overrides\..*')


def unused_overrides(arguments: Sequence[str], node: str, declared: Collection[str],
                     ) -> Iterator[str]:
    """
    Yield a warning for each override that has no effect.

    :param arguments: command line of the process.
    :param node: full name of the node, with its namespace.
    :param declared: names of its parameters.
    """
    for word, value in _options(arguments):
        if word in ('-p', '--param'):
            target, _, name = value.partition(':=')[0].rpartition(':')
            if not target or target == node.rpartition('/')[2]:
                yield from _unknown([name], f'-p {value}', declared)
        elif word == '--params-file':
            yield from _unused_of_file(Path(value), node, declared)


#: Arguments of `rclpy.init` for who asks or looks on for a moment: also on a disk that may only be
#: read, where a log could not be opened.
NO_LOG_FILE = ['--ros-args', '--disable-external-lib-logs']


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise ValueError, with word or file and line, for what ROS refuses darkly, or misreads."""
    ours = False
    for word in arguments[1:]:
        if not ours and word != '--ros-args':
            raise ValueError(f'unknown argument {word}: parameters follow --ros-args, as in '
                             '--ros-args -p NAME:=VALUE')
        ours = word != '--'
    for word, value in _options(arguments):
        if word in ('-p', '--param', '-r', '--remap') and ':=' not in value:
            raise ValueError(f'{word} {value}: write {word} NAME:=VALUE')
        if word == '--params-file':
            try:
                _check_file(read_text(Path(value)))
            except OSError as error:
                raise ValueError(f'{value}: {error.strerror}') from None
            except ValueError as error:
                raise ValueError(f'{value}: {error}') from None


def plain_words(error: Exception | str) -> str:
    """Return what an error says, without places in the sources of ROS."""
    text = re.sub(r'failed to initialize \w+: |, at /\S+:\d+', '', ' '.join(str(error).split()))
    if type(error).__name__ == 'UnknownROSArgsError':
        return f'unknown ROS arguments: {text}'
    if (folder := re.search(r"(log directory '.*'): (\d+)$", text)):
        return f'{folder[1]}: {os.strerror(int(folder[2]))}: ROS_LOG_DIR names another one'
    if (file := re.match(r'Failed opening file (.*) for writing: (.*)', text)):
        return f'log file {file[1]}: {file[2]}: ROS_LOG_DIR names another folder'
    return text


def _check_file(text: str) -> None:
    """Raise ValueError, with the line, unless ROS reads in a file what YAML says."""
    parse_yaml(text)
    for word in yaml.scan(text, yaml.SafeLoader):
        if isinstance(word, yaml.AliasToken):
            raise ValueError(f'line {word.start_mark.line + 1}: ROS reads no *{word.value}: '
                             'write the value again')
    waiting = [(yaml.compose(text, yaml.SafeLoader), '', False)]
    while waiting:
        node, name, inside = waiting.pop(0)
        if isinstance(node, yaml.MappingNode):
            waiting += [(value, str(key.value), inside or name == 'ros__parameters')
                        for key, value in node.value]
        elif node is not None and not inside:
            raise ValueError(f'line {node.start_mark.line + 1}: write NODE:, below it '
                             'ros__parameters:, and below that NAME: VALUE')
        elif node is not None and any(
                not isinstance(one, yaml.ScalarNode) or one.tag.endswith(':null') for one in
                (node.value if isinstance(node, yaml.SequenceNode) else [node])):
            raise ValueError(
                f'line {node.start_mark.line + 1}: {name} has no value that a parameter can have: '
                'write a number, a text, true or false, or a list of one kind of them')


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the options of ROS and their values."""
    ours = False
    for word, value in zip(arguments, arguments[1:]):
        ours = (ours or word == '--ros-args') and word != '--'
        if ours:
            yield word, value


def _unused_of_file(path: Path, node: str, declared: Collection[str]) -> Iterator[str]:
    try:
        content = parse_yaml(read_text(path))
    except (OSError, ValueError):
        return  # the middleware has refused it already
    sections = dict(_sections(content)) if isinstance(content, Mapping) else {}
    ours = [values for pattern, values in sections.items() if _matches(pattern, node)]
    if not ours:
        yield (f'{path} has no parameters for {node}, only for {", ".join(sections) or "nobody"}: '
               'defaults are in use; name its section /**/NODE or as the node is called')
    for values in ours:
        yield from _unknown(_names(values), str(path), declared)


def _sections(content: Mapping[str, Any], path: str = '') -> Iterator[tuple[str, Any]]:
    """Yield whose parameters a file has, and these."""
    for key, value in content.items():
        if key == 'ros__parameters':
            yield path, value
        elif isinstance(value, Mapping):
            yield from _sections(value, f'{path}/{str(key).strip("/")}')


def _matches(pattern: str, node: str) -> bool:
    """Return whether a section is for a node: * is any word, ** any number of them."""
    words = (r'(/[^/]+)*' if word == '**' else '/' + re.escape(word).replace(r'\*', '[^/]+')
             for word in pattern.split('/')[1:])
    return re.fullmatch(''.join(words), node) is not None


def _names(values: Any, prefix: str = '') -> Iterator[str]:
    """Yield the names of parameters, those in groups with dots."""
    for key, value in values.items() if isinstance(values, Mapping) else ():
        if isinstance(value, Mapping):
            yield from _names(value, f'{prefix}{key}.')
        else:
            yield f'{prefix}{key}'


def _unknown(names: Collection[str] | Iterator[str], where: str, declared: Collection[str],
             ) -> Iterator[str]:
    for name in names:
        if name not in declared and not _OTHERS.fullmatch(name):
            near = get_close_matches(name, declared, 1)
            meant = f': is {near[0]} meant?' if near else ''
            yield f'there is no parameter {name}, which {where} sets{meant}'
