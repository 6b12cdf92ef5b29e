# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Run the real command line in this process, on the models of `example_models`."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from intradp_ros.cli.main import main
from intradp_ros.graph.capture import capture
from intradp_ros.graph.serialise import save_graph

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Result:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Result]


@pytest.fixture
def example_models(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Make the example models importable, here and for the command line."""
    monkeypatch.syspath_prepend(str(HERE))
    return importlib.import_module('example_models')


@pytest.fixture
def archive(example_models: ModuleType, tmp_path: Path) -> Path:
    """Return the archive of the dense model for an input of 1x3x24x16."""
    torch.manual_seed(0)
    path = tmp_path / 'dense.graph'
    save_graph(capture(example_models.dense().eval(), torch.zeros(1, 3, 24, 16)), path)
    return path


@pytest.fixture(scope='session')
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where profiles are kept from test to test: to measure one takes seconds."""
    return tmp_path_factory.mktemp('profiles')


@pytest.fixture
def intradp(monkeypatch: pytest.MonkeyPatch, example_models: ModuleType, tmp_path: Path,
            profiles: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs `intradp` with arguments; profiles are kept, books are not."""
    (tmp_path / 'cache').mkdir()
    (tmp_path / 'cache' / 'profiles').symlink_to(profiles)
    monkeypatch.setenv('INTRADP_CACHE', str(tmp_path / 'cache'))

    def command(*arguments: object) -> Result:
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        return Result(status, *capsys.readouterr())

    return command
