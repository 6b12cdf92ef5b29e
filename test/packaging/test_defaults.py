# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What nodes begin with unless they are told otherwise comes with the installed package."""
from __future__ import annotations

import importlib
from pathlib import Path
import re
import subprocess
import sys

import pytest
import yaml

from intradp_ros.nodes.common.lifecycle import ManagedNode
from intradp_ros.nodes.fleet.coordinator_node import CoordinatorNode
from intradp_ros.nodes.fleet.device_node import DeviceNode
from intradp_ros.nodes.sharing.inference_node import InferenceNode
from intradp_ros.nodes.sharing.offload_node import OffloadNode

ROOT = Path(__file__).parents[2]
FACTORY = re.compile(r'[\w.]+:\w+( [\dx]+ \w+)?')
#: Runs with a text of that form: the model is loaded or the task made, by what is installed alone.
LOADED = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.startswith(('intradp_lab', 'intradp_lab')):
            raise ModuleNotFoundError(f'no module {name}', name=name)

sys.meta_path.insert(0, Absent())
sys.modules.update(dict.fromkeys(['sklearn', 'timm', 'torchvision', 'transformers']))  # absent
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.systems.training.base.task import load_task
text = sys.argv[1]
made = ModelSpec.parse(text).load() if ' ' in text else load_task(text)
"""


def texts(value: object) -> list[str]:
    """Return the factories that a parameter's value names."""
    found = value if isinstance(value, list) else [value]
    return [text for text in found if isinstance(text, str) and FACTORY.fullmatch(text)]


def defaults() -> dict[str, str]:
    """Return what names a factory: by the text, where it stands."""
    found: dict[str, str] = {}
    for name in sorted(path.stem for path in (ROOT / 'intradp_ros' / 'nodes').glob('*_node.py')):
        module = importlib.import_module(f'intradp_ros.nodes.{name}')
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, ManagedNode):
                for parameter in value.PARAMETERS:
                    for text in texts(parameter.default):
                        found[text] = f'{name}: {parameter.name}'
    for path in sorted((ROOT / 'config').glob('*.yaml')):
        for section in yaml.safe_load(path.read_text()).values():
            for parameter, value in section.get('ros__parameters', {}).items():
                for text in texts(value):
                    found[text] = f'{path.name}: {parameter}'
    return found


@pytest.mark.parametrize('text', sorted(defaults()))
def test_a_default_is_made_without_the_laboratory(text: str) -> None:
    ran = subprocess.run([sys.executable, '-c', LOADED, text], capture_output=True, text=True,
                         timeout=300)
    assert ran.returncode == 0, f'{defaults()[text]}: {ran.stderr}'


def test_nodes_with_a_model_have_a_default() -> None:
    for node in (InferenceNode, OffloadNode, DeviceNode, CoordinatorNode):
        [default] = [p.default for p in node.PARAMETERS if p.name in ('model', 'models')]
        assert texts(default), f'{node.__name__} begins without a model'
