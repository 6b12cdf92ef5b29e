# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The package intradp_lab, whose source folder this is."""
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent
setup(packages=['intradp_lab', *(f'intradp_lab.{name}' for name in find_packages(str(HERE)))],
      package_dir={'intradp_lab': '.'},
      package_data={'': ['*.json', '*.csv', '*.html', '*.c', '*.md', 'data/**/*', 'templates/*']})
