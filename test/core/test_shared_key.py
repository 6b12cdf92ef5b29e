# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Key files: made with a new key that nobody else may read, refused otherwise."""
from __future__ import annotations

from pathlib import Path

from dispositions import files_of_at_most
import pytest

from intradp_ros.cli.main import main
from intradp_ros.core.shared_key import KEY_BYTES, SharedKey


def test_the_command_makes_a_key_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / 'fleet.key'
    assert main(['key', str(path)]) == 0
    assert path.stat().st_mode & 0o777 == 0o600
    key = SharedKey.load(path)
    assert len(key.secret) == KEY_BYTES and key.secret.hex() not in repr(key)
    assert main(['key', str(path)]) == 2 and SharedKey.load(path) == key
    assert 'exists' in capsys.readouterr().err


def test_a_key_that_others_may_read_is_none(tmp_path: Path) -> None:
    path = tmp_path / 'fleet.key'
    SharedKey.generate().save(path)
    path.chmod(0o644)
    with pytest.raises(ValueError, match='chmod 600'):
        SharedKey.load(path)


@pytest.mark.parametrize('text', ['', 'abc', '00' * 31, '00' * 33, 'zz' * 32, 'é' * 64])
def test_what_is_no_key(tmp_path: Path, text: str) -> None:
    path = tmp_path / 'fleet.key'
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ValueError, match='not a key file'):
        SharedKey.load(path)


def test_derived_keys_differ_by_purpose_and_number() -> None:
    key = SharedKey.generate()
    found = {key.derived('up', 1, 2), key.derived('down', 1, 2), key.derived('up', 2, 1),
             key.derived('up', 1), SharedKey.generate().derived('up', 1, 2)}
    assert len(found) == 5 and key.derived('up', 1, 2) in found


def test_of_a_key_that_cannot_be_written_nothing_is_left(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A disk that becomes full: as a limit of the sizes of files, above which writing fails."""
    path = tmp_path / 'fleet.key'
    with files_of_at_most(10):
        assert main(['key', str(path)]) == 2
    assert f'{path}: File too large' in capsys.readouterr().err and not path.exists()
    assert main(['key', str(path)]) == 0
