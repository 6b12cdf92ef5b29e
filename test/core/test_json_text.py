# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Files of JSON are read up to a size, and what is none is refused with its cause."""
from __future__ import annotations

from pathlib import Path

import pytest

from intradp_lab.testbed.recorded import read_recording
from intradp_ros.core.json_text import parse_json, read_json
from intradp_ros.core.limits import MAX_CONTAINERS, MAX_FILE


@pytest.mark.parametrize(('data', 'cause'), [
    (b'[' + b' ' * 99 + b']', 'longer than 100 bytes'), (b'{"a": "\xff"}', 'byte 7 is 0xff'),
    (b'{"a": }', 'no JSON'), (b'', 'no JSON'), (b'[' * 100, 'no JSON')])
def test_what_is_no_json_is_refused_with_its_cause(
        tmp_path: Path, data: bytes, cause: str) -> None:
    (tmp_path / 'file').write_bytes(data)
    with pytest.raises(ValueError, match=cause):
        read_json(tmp_path / 'file', 100)


def test_a_mark_of_byte_order_is_no_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / 'file').write_bytes(b'\xef\xbb\xbf[1]')
    assert read_json(tmp_path / 'file', 100) == [1]


@pytest.mark.parametrize('text', ['[' * 50_000 + ']' * 50_000, f'[{"{}," * MAX_CONTAINERS}1]'])
def test_what_costs_too_much_to_parse_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match='nested too deeply|lists and objects'):
        parse_json(text)


def test_a_file_that_grew_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    with (tmp_path / 'file').open('wb') as file:
        file.truncate(1 << 40)  # it has no blocks
    with pytest.raises(ValueError, match=f'longer than {MAX_FILE} bytes'):
        read_recording(tmp_path / 'file')
