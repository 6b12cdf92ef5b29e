# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The table of systems: roles are read with their fleets, what is missing is named."""
from types import SimpleNamespace

import pytest

from intradp_ros.nodes.fleet import systems
from intradp_ros.nodes.fleet.fleet_parameters import FleetPlace
from intradp_ros.nodes.fleet.systems import (
    device_part,
    read_roles,
    RolePlace,
    System,
)


def test_roles_may_be_in_several_fleets_with_memory_of_their_own(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems, 'SYSTEMS', {
        'stages': System('m:a', ''), 'lessons': System('m:b', ''), 'chess': System('m:c', '')})
    day, night, club = FleetPlace('fleet'), FleetPlace('night'), FleetPlace('club', '/town')
    assert read_roles(['stages', 'lessons@night:2000', 'chess@/town/club'], day, 5e8) == (
        RolePlace('stages', day, 5e8), RolePlace('lessons', night, 2e9),
        RolePlace('chess', club, 0.0))
    for texts, error in ((['golf'], 'no system'), (['stages', 'stages@x'], 'twice'),
                         ([''], 'empty'), (['stages@a/b'], 'a/b'), (['stages@a:much'], 'a:much')):
        with pytest.raises(ValueError, match=error):
            read_roles(texts, day, 0.0)


def test_a_fleet_is_in_the_namespace_of_its_nodes_or_where_its_name_says() -> None:
    node = SimpleNamespace(get_namespace=lambda: '/board1')
    for text, topic, namespace in (('words', 'words/devices', '/board1'),
                                   ('/words', '/words/devices', '/'),
                                   ('/lab/words', '/lab/words/devices', '/lab')):
        place = FleetPlace.parse(text)
        assert (place.name, place.topic('devices')) == ('words', topic)
        assert place.namespace_of(node) == namespace
    for wrong in ('', '/', 'a/b', '/a//b', '/a/', 'a b', '/1'):
        with pytest.raises(ValueError):
            FleetPlace.parse(wrong)


def test_what_a_system_needs_and_is_not_installed_is_named_with_the_command(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems, 'SYSTEMS', {
        'dreams': System('no_such_package.dreams:Dreams', '', extra='language')})
    with pytest.raises(ValueError, match="pip install 'gguf.*'transformers"):
        device_part('dreams', None, {})


def test_systems_share_no_name_of_a_parameter_with_another_meaning() -> None:
    for kind in ('parameters', 'planning'):
        found = {}
        for name, system in systems.SYSTEMS.items():
            entry = getattr(system, kind)
            for parameter in systems._named(entry) if entry else ():
                assert found.setdefault(parameter.name, parameter) == parameter, name
        assert found
