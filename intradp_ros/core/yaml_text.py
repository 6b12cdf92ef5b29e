# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""YAML in which no key stands twice: of two values libraries take the last, without a word."""
from __future__ import annotations

from typing import Any

import yaml


def parse_yaml(text: str) -> Any:
    """Return what a YAML text says; ValueError if it is none, or has a key twice."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        check_keys(node)
        return None if node is None else loader.construct_document(node)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f'no YAML: {" ".join(str(error).split())}') from None
    finally:
        loader.dispose()


def check_keys(top: yaml.Node | None) -> None:
    """Raise ValueError if a mapping of a composed text has a key twice, with its line."""
    seen, waiting = set[int](), [top]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:  # an alias
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            names = set[str]()
            for key, value in node.value:
                waiting.append(value)
                if isinstance(key, yaml.ScalarNode) and key.value in names:
                    raise ValueError(f'line {key.start_mark.line + 1}: a key stands twice: '
                                     f'{key.value[:200]}')
                names.add(str(key.value))
