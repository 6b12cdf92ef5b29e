# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A model with all weights on disk, by accelerate's `disk_offload`: what users have without us.

Arguments: folder of blobs, digest of the model, folder for its offloaded weights, tokens of the
prompt (JSON), tokens to answer.  Says a JSON object a line.
"""
from __future__ import annotations

import json
import os
from pathlib import Path
import sys
import time

import torch

from intradp_lab.language.reference import whole_model
from intradp_lab.language.settings import PeakMemory
from intradp_ros.blobs.store import BlobStore
from intradp_ros.systems.language.families import library
from intradp_ros.systems.language.manifest import read_manifest


def offload(store: BlobStore, digest: str, folder: Path) -> None:
    """Write the weights as accelerate wants them; once, with memory for the whole model."""
    from accelerate.utils import offload_state_dict
    text = store.load(digest)
    assert text is not None
    model = whole_model(read_manifest(bytes(text.numpy().data).decode(), digest), store)
    offload_state_dict(str(folder), {**model.state_dict(), 'done': torch.zeros(1)})


def forget(folder: Path) -> None:
    """Let no file of a folder be in the page cache: there it would cost no disk."""
    for path in (each for each in folder.iterdir() if each.is_file()):
        with path.open('rb') as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main() -> None:
    """Answer one prompt."""
    from accelerate import disk_offload, init_empty_weights
    folder, digest, offloaded, prompt, count = sys.argv[1:]
    torch.set_num_threads(1)
    memory = PeakMemory()
    store = BlobStore(Path(folder), 1 << 44)
    text = store.load(digest)
    assert text is not None
    plain = dict(read_manifest(bytes(text.numpy().data).decode(), digest).config)
    transformers = library()
    config = transformers.AutoConfig.for_model(plain.pop('model_type'), **plain)
    with init_empty_weights(include_buffers=False):
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
    disk_offload(model, offloaded, execution_device=torch.device('cpu'))
    print(json.dumps({'ready': 'accelerate'}), flush=True)
    ids, cache, tokens, times = torch.tensor([json.loads(prompt)]), None, [], []
    with torch.inference_mode():
        for _ in range(int(count)):
            out = model(ids, past_key_values=cache, use_cache=True)
            tokens.append(int(out.logits[0, -1].argmax()))
            times.append(time.time())
            ids, cache = torch.tensor([[tokens[-1]]]), out.past_key_values
    print(json.dumps({'fate': 'done', 'answer': tokens, 'times': times,
                      'peak': memory.nbytes}), flush=True)


if __name__ == '__main__':
    main()
