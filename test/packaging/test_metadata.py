# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The package says of itself the same everywhere, and its source distribution is whole."""
from __future__ import annotations

from pathlib import Path
import re
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree

import pytest
from requirements import declared
import yaml

import intradp_ros

ROOT = Path(__file__).parents[2]
PROJECT = declared()['project']
MANIFEST = ElementTree.parse(ROOT / 'package.xml').getroot()
CITATION = yaml.safe_load((ROOT / 'CITATION.cff').read_text())
#: What `pip install` builds from, and what people read.
NEEDED = ('action', 'cmake', 'config', 'intradp_ros', 'launch', 'msg', 'src', 'srv', 'doc')


def test_all_places_state_the_same_version() -> None:
    assert {PROJECT['version'], MANIFEST.findtext('version'), str(CITATION['version']),
            intradp_ros.__version__} == {'0.2.0'}


def test_the_manifest_names_author_and_addresses() -> None:
    assert {url.get('type') for url in MANIFEST.iter('url')} == {
        'website', 'repository', 'bugtracker'}
    assert MANIFEST.findtext('author') == PROJECT['authors'][0]['name']
    assert {'Homepage', 'Source', 'Issues', 'Changelog'} <= set(PROJECT['urls'])
    assert {url.text for url in MANIFEST.iter('url')} <= set(PROJECT['urls'].values())


def test_papers_are_cited_by_their_identifiers() -> None:
    cited = {each['value'].removeprefix('arXiv:') for paper in CITATION['references']
             for each in paper['identifiers']}
    readme = (ROOT / 'README.md').read_text()
    assert {'2507.05829', '2512.10990'} <= cited
    assert all(f'arXiv {number}' in readme for number in cited)


def test_no_module_of_the_standard_library_is_shadowed() -> None:
    names = {path.stem for folder in ('bench', 'tools', 'cmake')
             for path in (ROOT / folder).glob('*.py')}
    assert not names & sys.stdlib_module_names


def test_messages_are_found_in_a_checkout_too(tmp_path: Path) -> None:
    """Where the README's first block leaves the reader, Python finds the sources first."""
    (tmp_path / 'intradp_ros').mkdir()
    for path in (ROOT / 'intradp_ros').iterdir():
        if path.name not in ('action', 'msg', 'srv') and path.suffix != '.so':
            (tmp_path / 'intradp_ros' / path.name).symlink_to(path)
    code = 'from intradp_ros import IntraDP; IntraDP(server="offload"); print(IntraDP.__module__)'
    done = subprocess.run([sys.executable, '-c', f'import intradp_ros; {code}; '
                           'print(intradp_ros.__file__)'], cwd=tmp_path, capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(str(tmp_path))


@pytest.fixture(scope='module')
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the source distribution, made without an environment of its own."""
    folder = tmp_path_factory.mktemp('dist')
    code = f'from setuptools import build_meta; print(build_meta.build_sdist({str(folder)!r}))'
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.split()[-1]


def test_the_source_distribution_holds_what_is_built(distribution: Path) -> None:
    with tarfile.open(distribution) as archive:
        names = {name.partition('/')[2] for name in archive.getnames()}
    there = {str(path.relative_to(ROOT)) for folder in NEEDED
             for path in (ROOT / folder).rglob('*') if path.is_file()
             and not re.search(r'__pycache__|\.pyc$', str(path))}
    assert there - names == set()
    assert {'CMakeLists.txt', 'package.xml', 'plugin.xml', 'LICENSE', 'README.md',
            'requirements.txt', 'setup.py', 'pyproject.toml'} <= names
    assert not [name for name in names if '.pyc' in name or name.startswith(('out/', '.venv'))]


def test_the_source_distribution_knows_its_name(distribution: Path, tmp_path: Path) -> None:
    """What failed before: `setup.py` reads a module of `cmake/`."""
    with tarfile.open(distribution) as archive:
        archive.extractall(tmp_path, filter='data')
    [folder] = tmp_path.iterdir()
    done = subprocess.run([sys.executable, 'setup.py', '--version'], cwd=folder, text=True,
                          capture_output=True)
    assert done.stdout.split()[-1] == '0.2.0', done.stderr
