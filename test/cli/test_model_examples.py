# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Models as people have them are added exactly, or refused with their cause."""
from __future__ import annotations

from pathlib import Path

import pytest

from intradp_lab.zoo.wheel_files import MissingWheelError
from intradp_ros.core.torchvision_import import torchvision

torchvision()
for library in ('ultralytics', 'timm', 'transformers', 'onnx2torch'):
    pytest.importorskip(library)

from model_examples.check import check  # noqa: E402
from model_examples.example import Example  # noqa: E402
from model_examples.examples import EXAMPLES  # noqa: E402
from model_examples.refusals import Refusal, REFUSALS, refused  # noqa: E402


@pytest.mark.slow
@pytest.mark.parametrize('example', EXAMPLES, ids=lambda example: example.name)
def test_an_example_is_added_exactly(example: Example, tmp_path: Path) -> None:
    """Archive and divided archive say what the original says of real pictures."""
    try:
        record = check(example, tmp_path)
    except MissingWheelError as error:
        pytest.skip(str(error))
    assert record['added'], record['says']
    assert record['exact'] and record['split_exact'], record
    assert record['head'] == example.head and record['moves'] > 1e-4


@pytest.mark.parametrize('refusal', REFUSALS, ids=lambda refusal: refusal.name)
def test_what_is_not_supported_is_refused_with_its_cause(refusal: Refusal,
                                                         tmp_path: Path) -> None:
    assert refusal.says in refused(refusal, tmp_path)
