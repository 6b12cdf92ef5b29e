# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the Dockerfile copies, installs and starts is there; Docker itself is not needed."""
from __future__ import annotations

from pathlib import Path
import re
import subprocess

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / 'docker' / 'Dockerfile').read_text()
LINES = re.sub(r'\\\n\s*', ' ', TEXT).splitlines()


def instructions(name: str) -> list[str]:
    return [line.removeprefix(f'{name} ') for line in LINES if line.startswith(f'{name} ')]


def test_what_is_copied_is_there() -> None:
    sources = [word for line in instructions('COPY') for word in line.split()[:-1]]
    assert len(sources) >= 3 and all((ROOT / source).exists() for source in sources)


def test_each_target_starts_a_launch_file_of_ours() -> None:
    started = re.findall(r'ros2 launch intradp_ros (\S+)', TEXT)
    assert {'robot.launch.py', 'server.launch.py'} == set(started)
    assert all((ROOT / 'launch' / name).exists() for name in started)


@pytest.mark.parametrize('torch', ['torch', ''])
def test_pip_brings_what_the_requirements_name(torch: str, tmp_path: Path) -> None:
    """With and without torch, by the very lines of the Dockerfile, up to pip itself."""
    folder = tmp_path / 'src' / 'intradp_ros'
    folder.mkdir(parents=True)
    wanted = (ROOT / 'requirements.txt').read_text()
    (folder / 'requirements.txt').write_text(wanted)
    line, = (line for line in instructions('RUN') if 'pip.txt' in line)
    subprocess.run(['bash', '-c', line.partition('&& python3')[0]], cwd=tmp_path, check=True,
                   env={'TORCH': torch, 'PATH': '/usr/bin:/bin'})
    names = set(re.findall(r'^[a-z]\w+', (tmp_path / 'pip.txt').read_text(), re.MULTILINE))
    assert names == set(re.findall(r'^[a-z]\w+', wanted, re.MULTILINE)) - ({'torch'} - {torch})


def test_every_line_is_a_command_of_bash() -> None:
    for line in instructions('RUN'):
        subprocess.run(['bash', '-n', '-c', line], check=True)
    entries = re.findall(r'^ENTRYPOINT \["/bin/bash", "-c", "(.*)", "\w+"\]$', TEXT, re.MULTILINE)
    assert len(entries) == 2
    for entry in entries:
        subprocess.run(['bash', '-n', '-c', entry.replace('\\"', '"')], check=True)
