# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys

import pytest
from synthetic import random_split_graph

from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import cut, Partition, RowStage

ENCODED = Partition((RowStage(3, 0.5, 2, 1), RowStage(9, 0.25)), ((0, 'zstd'), (4, 'bits')))


def test_survives_a_file() -> None:
    assert Partition.from_dict(json.loads(json.dumps(ENCODED.to_dict()))) == ENCODED


def test_is_the_same_in_a_process_that_hashes_texts_otherwise() -> None:
    assert hash(ENCODED) == hash(Partition(ENCODED.stages, ENCODED.encodings))
    script = ('import pickle, sys\n'
              'one = pickle.loads(bytes.fromhex(sys.argv[1]))\n'
              'same = type(one)(one.stages, one.encodings)\n'
              'print(len({one, same}), hash("zstd"))\n')
    reported = {subprocess.run(
        [sys.executable, '-c', script, pickle.dumps(ENCODED).hex()], check=True, text=True,
        capture_output=True, env={**os.environ, 'PYTHONHASHSEED': seed}).stdout
        for seed in ('1', '2')}
    assert len(reported) == 2  # texts have other hashes there
    assert all(line.startswith('1 ') for line in reported)


def test_encodings_are_optional_in_a_file() -> None:
    assert Partition.from_dict({'stages': ENCODED.to_dict()['stages']}).encodings == ()


@pytest.mark.parametrize('encodings', [
    [[0]], [[0, 'zstd', 1]], [['0', 'zstd']], [[True, 'zstd']], [[0, 5]], 7, 'zstd', {'0': 'zstd'},
    [None], [[0.0, 'zstd']], [[0, None]]])
def test_refuses_what_are_no_encodings(encodings: object) -> None:
    with pytest.raises(ValueError, match='not a partition'):
        Partition.from_dict({'stages': [], 'encodings': encodings})


@pytest.mark.parametrize('wrong', [
    {'upward': 1}, {'by_input': 0}, {'upward': None, 'by_input': 'no'}, {'growth': None},
    {'growth': 'fast'}])
@pytest.mark.parametrize('side', ['robot_pace', 'server_pace'])
def test_refuses_what_is_no_pace(side: str, wrong: dict[str, object]) -> None:
    stages = ENCODED.to_dict()['stages']
    stages[1][side].update(wrong)
    with pytest.raises(ValueError, match='not a partition'):
        Partition.from_dict({'stages': stages})


@pytest.mark.parametrize('encodings', [
    ((4, 'zstd'), (0, 'zstd')), ((0, 'zstd'), (0, 'lz4')), ((-1, 'zstd'),), ((8, 'zstd'),),
    ((0, 'gzip'),), ((0, 'none'),), ((0, ''),)])
def test_refuses_encodings_that_do_not_fit(encodings: tuple[tuple[int, str], ...]) -> None:
    Partition(ENCODED.stages).check(9, 8)
    with pytest.raises(ValueError, match='encoding'):
        Partition(ENCODED.stages, encodings).check(9, 8)


def test_names_lossy_encodings() -> None:
    assert ENCODED.lossy == frozenset()
    assert Partition(ENCODED.stages, ((0, 'zstd'), (1, 'int8'))).lossy == {'int8'}


def test_transfers_take_the_encodings_of_their_values() -> None:
    split = random_split_graph(0)
    plain = cut(len(split.operators), len(split.operators) // 2)
    crossing = sorted({t.value for t in lower(split, plain).transfers})
    encoded = Partition(plain.stages, tuple((value, 'lz4') for value in crossing[:1]))
    assert len(crossing) > 1
    for transfer in lower(split, encoded).transfers:
        assert transfer.encoding == ('lz4' if transfer.value == crossing[0] else 'none')


def test_lowering_refuses_encodings_of_unknown_values() -> None:
    split = random_split_graph(0)
    stages = cut(len(split.operators), 1).stages
    with pytest.raises(ValueError, match='encodings must be for ascending values'):
        lower(split, Partition(stages, ((len(split.rows), 'zstd'),)))
