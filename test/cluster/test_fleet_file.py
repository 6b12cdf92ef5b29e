# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path
from time import process_time

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
import yaml

from intradp_ros.cluster.fleet_file import parse_fleet, read_fleet
from intradp_ros.cluster.located_yaml import FleetFileError, MAX_BYTES

EXAMPLE = Path(__file__).parents[2] / 'config/fleet.yaml'
DEVICES = 'devices:\n  a: {memory: 4 GB}\n  b: {memory: 512 MiB}\n  c: {memory: 1 GB}\n'


def test_the_example_is_read() -> None:
    fleet = read_fleet(EXAMPLE)
    topology = fleet.topology
    assert topology.names == ('robot1', 'robot2', 'box', 'server')
    assert topology.device('robot1').battery.charge == pytest.approx(0.8 * 50 * 3600)
    assert topology.device('box').memory_bytes == 16e9
    assert topology.medium(topology.device('server').disk).bytes_per_second == 2e9
    assert topology.path('robot1', 'robot2') == ('wifi', 'wifi')
    assert topology.rate('robot1', 'robot2') == 6.25e6
    assert topology.path('server', 'box') == ('wifi/server.up', 'wifi/box.down')
    assert topology.delay('robot1', 'server') == 2e-3


def test_rings_cables_and_paths_of_ones_own() -> None:
    fleet = parse_fleet(DEVICES + """
networks:
  arm: {ring: 1 Gbit/s, devices: [a, b, c]}
  wire: {cable: 80 Mbit/s, devices: [a, b]}
media:
  slow: {rate: 8 kbit/s, delay: 3 ms}
paths:
  a > c: [slow, slow]
""")
    assert fleet.topology.path('a', 'b') == ('arm/a>b',), 'the first network does'
    assert fleet.topology.path('a', 'c') == ('slow', 'slow')
    assert fleet.topology.rate('a', 'c') == 500.0
    assert fleet.topology.medium('wire/a>b').bytes_per_second == 1e7


def test_profiles_are_beside_the_file(tmp_path: Path) -> None:
    file = tmp_path / 'fleet.yaml'
    file.write_text('devices: {a: {memory: 1 GB, profile: a.json}}')
    assert read_fleet(file).profiles == {'a': tmp_path / 'a.json'}
    with pytest.raises(FleetFileError, match='cannot be read'):
        read_fleet(tmp_path / 'none.yaml')


@pytest.mark.parametrize('text, message', [
    ('', r'fleet.yaml:1: is empty'),
    ('networks: {}', r':1: lacks "devices": add a line'),
    ('devices: {}', r':1: devices: a fleet has 1 to 256'),
    ('devices:\n  a: {memry: 4 GB}', r':2: devices.a.memry: unknown; write one of: memory'),
    ('devices:\n  a: {speed: 4}', r':2: devices.a: lacks "memory"'),
    ('devices:\n  a: {memory: 4 Gb}', r':2: devices.a.memory: write an amount of memory'),
    ('devices:\n  a: {memory: 4}', r"B, kB, MB, .*, not '4'"),
    ('devices:\n  a: {memory: inf GB}', 'not .inf GB.'),
    ('devices:\n  a: {memory: 1 GB}\n  a: {memory: 1 GB}', r':3: devices.a: stands here a second'),
    ('devices:\n  a: {memory: 1 GB, speed: nan}', r'speed: write a number above 0'),
    ('devices:\n  a: {memory: 1 GB, speed: 0}', r'speed: write a number above 0'),
    ('devices:\n  a: {memory: 1 GB, speed: 2, profile: x}', r'needs no speed'),
    ('devices:\n  a: {memory: 1 GB, battery: {capacity: 1 Wh, level: 2}}', r'0 to 1'),
    ('devices: &x {a: {memory: 1 GB}}\nnetworks: *x', 'anchors'),
    ('devices: [', r':1: no YAML'),
    ('devices: [a]', r':1: devices: write "key: value" lines'),
    (DEVICES + 'networks: {n: {devices: [a, b]}}', r':5: networks.n: say once what it is'),
    (DEVICES + 'networks: {n: {ring: 1 Gbit/s, devices: [a, z]}}', r"'z' is not one of a, b, c"),
    (DEVICES + 'networks: {n: {ring: 1 Gbit/s, devices: [a]}}', r'two or more'),
    (DEVICES + 'networks: {n: {cable: 1 Gbit/s, devices: [a, b, c]}}', r'joins two devices'),
    (DEVICES + 'networks: {n: {ring: 1 Gbit/s, devices: [a, b], port: 1 Gbit/s}}', r'remove it'),
    (DEVICES + 'networks: {n: {ring: -1 Gbit/s, devices: [a, b]}}', r'ring: write a rate'),
    (DEVICES + 'paths: {a > z: []}', r'write "a > b:'),
    (DEVICES + 'paths: {a > b: []}', r'a path of no media: name what it crosses'),
    (DEVICES + 'networks: {n: {access point: 1e300 Gbit/s, devices: [a, b]}}',
     r':5: .*write a rate from 8 to 8e.12 bit/s'),
    (DEVICES + 'networks: {n: {ring: 1e-300 Gbit/s, devices: [a, b]}}', r'write a rate from'),
    (DEVICES + 'networks: {n: {ring: 1 Gbit/s, delay: 1e300 s, devices: [a, b]}}',
     r'write a time from'),
    ('devices:\n  a: {memory: 1e200 GB}', r'write an amount of memory from'),
    ('devices:\n  a: {memory: 1 GB, speed: 1e-300}', r'write a number from'),
    ('devices:\n  a: {memory: 1 GB, power: {compute: 1e300, send: 1, idle: 1}}',
     r'write a number from'),
    (DEVICES + 'paths: {a > b: [m]}', r"there is no medium 'm'"),
    (DEVICES + 'media: {m: {rate: 1 B/s}, m: {rate: 1 B/s}}', r'second time'),
    (DEVICES + 'media: {m: {rate: 1 B/s}}\npaths: {a > b: [m], a>b: [m, m]}',
     r':6: paths.a>b: this path stands here a second time'),
    ('devices:\n  a: {memory: 1 GB, threads: 2.5}', r'write a whole number of at least 1'),
    ('#' * (MAX_BYTES + 1), r'longer than')])
def test_what_is_wrong_is_reported_with_its_line_and_the_fix(text: str, message: str) -> None:
    with pytest.raises(FleetFileError, match=message):
        parse_fleet(text)


@pytest.mark.parametrize('piece', ['[', '{a: ', '- ', '[{a: '])
def test_deep_nesting_is_refused_at_once(piece: str) -> None:
    begin = process_time()
    with pytest.raises(FleetFileError, match=':1: no YAML .* levels'):
        parse_fleet(piece * 100_000)
    assert process_time() - begin < 5


LEAVES = st.none() | st.floats() | st.integers() | st.sampled_from(['1 GB', '1 Gbit/s', 'a'])
KEYS = st.sampled_from(['devices', 'networks', 'media', 'paths', 'a', 'memory', 'ring', 'rate',
                        'a > b', 'battery', 'power'])


@given(st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
    KEYS, inner, max_size=4), max_leaves=12))
@settings(max_examples=150)
def test_whatever_stands_in_a_file_is_read_or_refused(data: object) -> None:
    try:
        parse_fleet(yaml.safe_dump(data))
    except FleetFileError as error:
        assert str(error).startswith('fleet.yaml:')


@pytest.mark.parametrize('text, line, cause', [
    (b'devices:\n  "a\\e[31m": {memory: 1 GB}\n', 2, 'control characters'),
    (b'devices:\n  a: &x {memory: 1 GB}\n  b: *x\n', 3, 'anchors'),
    (b'devices:\n  a\xff: {memory: 1 GB}\n', 2, 'UTF-8'),
    (b'devices:\n  a: {memory: 1 GB}\nmedia:\n  m: {rate: 1 MB/s}\nnetworks: {}\n  x\n', 6, ''),
])
def test_odd_texts_are_refused_with_file_and_line(tmp_path, text, line, cause):
    path = tmp_path / 'fleet.yaml'
    path.write_bytes(text)
    with pytest.raises(FleetFileError, match=f'fleet.yaml:{line}: .*{cause}'):
        read_fleet(path)


def test_a_rate_needs_no_blank_before_its_unit(tmp_path):
    path = tmp_path / 'fleet.yaml'
    path.write_text('devices: {a: {memory: 1GB}, b: {memory: 1 GB}}\n'
                    'networks: {w: {cable: 20Mbit/s, devices: [a, b]}}\n', 'utf-8-sig')
    assert read_fleet(path).topology.rate('a', 'b') == 20 * 125e3
