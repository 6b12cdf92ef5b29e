# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
SmolLM2 by what others offer: ``python bench/language_peers.py PART ...`` (root).

airllm     layer by layer from disk (`pip install --no-deps airllm`), with the memory of one of
           the demo's boards, and with that of all three
llama.cpp  its RPC servers on three emulated boards, all weights in memory, at 1000, 100 and 20
           Mbit/s, and one process with two threads; with the file as it is (Q4_1, of which it
           sums integers of rounded activations) and in float32; ``--llama FOLDER`` has
           ggml-rpc-server, llama-bench and llama-quantize, built with -DGGML_RPC=ON

Ours at the same memory, or with all in memory, is measured in the same run.
"""
from __future__ import annotations

import argparse
from contextlib import redirect_stdout
import importlib
import json
from pathlib import Path
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from intradp_lab.emulation.device_limits import DeviceLimits, limited_devices
from intradp_lab.emulation.fleet_network import address, fleet_network
from intradp_lab.language.accelerate_process import forget
from intradp_lab.language.demo_scene import (
    FLOOR,
    MB,
    measure_fleet,
    OURS,
    prepare,
    Prepared,
    Scene,
)
from intradp_lab.language.emulated_fleet import Talking
from intradp_lab.language.reference import whole_model
from intradp_lab.language.settings import PeakMemory
from intradp_ros.core.cache_folder import cache_folder
from intradp_ros.core.processes import Command
from intradp_ros.systems.language.families import library as transformers_library
from intradp_ros.systems.language.import_model import load_tokenizer
from intradp_ros.systems.language.smollm2 import smollm2

MEMORY = {'rover': 200 * MB, 'drone': 150 * MB, 'dock': 150 * MB}
#: Each holds the packed model, other than in bench/language.py.
ROOMY = {'rover': 290 * MB, 'drone': 175 * MB, 'dock': 175 * MB}
PORT, TOKENS = 50052, 32


def opened(scene: Scene) -> Prepared:
    """Return SmolLM2, and what one process answers."""
    folder = cache_folder() / 'demo-language'
    folder.mkdir(parents=True, exist_ok=True)
    return prepare(folder, scene)


def airllm(folder: Path, llama: Path) -> dict[str, Any]:
    """Measure AirLLM beneath the memory and the disk rate of boards; and ours."""
    scene = Scene(MEMORY)
    made = opened(scene)
    saved = _saved(made, folder / 'model')
    found: dict[str, Any] = {}
    whole = sum(MEMORY.values())
    for memory in (MEMORY['rover'], whole):
        limit = FLOOR + memory
        for shards in saved.rglob('*.safetensors'):
            forget(shards.parent)
        with limited_devices({'board': DeviceLimits(0.0, limit, scene.disk)},
                             made.store.folder) as groups:
            child = Talking(Command('airllm', [
                sys.executable, __file__, 'answer', '--folder', str(saved), '--prompt',
                json.dumps(made.prompt)], groups.exec_prefix('board')), folder / 'airllm.log')
            try:
                end = child.hear('answer', 400.0)
            finally:
                child.stop()
        assert end['answer'] == made.answer[:len(end['answer'])]
        found[f'airllm, {memory / MB:.0f} MB'] = end
    ours = measure_fleet(made, scene, folder / 'ours', OURS, tuple(MEMORY))
    found['ours, 500 MB on three'] = {'ms_per_token': ours['ms_per_token']}
    return found


def answer(folder: Path, prompt: list[int]) -> dict[str, Any]:
    """Answer as AirLLM does, in this process; ms a token."""
    import torch
    torch.set_num_threads(1)
    transformers_library()  # first: it knows how torchvision is imported
    library = importlib.import_module('airllm')
    memory = PeakMemory()
    model = library.AutoModel.from_pretrained(str(folder), device='cpu', dtype=torch.float32)
    times = []
    tokens = torch.tensor([prompt])
    for count in (1, 4):  # the difference is three tokens after the prompt
        start = time.perf_counter()
        with torch.inference_mode():
            made = model.generate(tokens, max_new_tokens=count, do_sample=False, use_cache=True,
                                  pad_token_id=0)
        times.append(time.perf_counter() - start)
    return {'answer': made[0, tokens.shape[1]:].tolist(), 'peak_mb': memory.nbytes / MB,
            'ms_per_token': 1e3 * (times[1] - times[0]) / 3}


def _saved(made: Prepared, folder: Path) -> Path:
    """Write the model as `save_pretrained` does, split into layers as AirLLM wants it."""
    from safetensors.torch import save_file
    model = whole_model(made.manifest, made.store)
    folder.mkdir(parents=True)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_file(state, folder / 'model.safetensors', {'format': 'pt'})
    assert made.manifest.tokenizer
    data = made.store.load(made.manifest.tokenizer.digest)
    assert data is not None
    load_tokenizer(data).save_pretrained(folder)
    importlib.import_module('airllm').AutoModel.from_pretrained(str(folder), device='cpu')
    return folder


def llama_cpp(folder: Path, llama: Path) -> dict[str, Any]:
    """Measure llama.cpp in one process, and over three boards, the first of which asks; ours."""
    model, found = folder / 'float32.gguf', dict[str, Any]()
    _run(str(llama / 'llama-quantize'), '--allow-requantize', str(smollm2()), str(model), 'F32')
    files = {'as it is': smollm2(), 'float32': model}
    one: dict[str, list[float]] = {}
    for _ in range(3):
        one.setdefault('ours', []).append(_ours_alone())
        for title, file in files.items():
            one.setdefault(f'llama.cpp, {title}', []).append(_bench(llama, file, threads=2))
    found['one process, two threads'] = {
        title: statistics.median(each) for title, each in one.items()}
    print(json.dumps(found), flush=True)
    names = list(ROOMY)
    for mbit in (1000.0, 100.0, 20.0):
        scene = Scene(ROOMY, disk=0.0, mbit=mbit, tokens=TOKENS)
        ours = measure_fleet(opened(scene), scene, folder / f'ours-{mbit:g}', OURS, names)
        figures = found[f'{mbit:g} Mbit/s'] = {'ours': ours['ms_per_token'],
                                               'blocks of ours': ours['blocks']}
        with fleet_network(names, mbit) as network:
            servers = [subprocess.Popen(
                [*network.exec_prefix(name), str(llama / 'ggml-rpc-server'), '-H', address(k),
                 '-p', str(PORT), '-t', '1'], stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL) for k, name in enumerate(names) if k]
            try:
                time.sleep(3)
                for title, file in files.items():
                    figures[f'llama.cpp, {title}'] = _bench(
                        llama, file, *network.exec_prefix(names[0]), rpc=','.join(
                            f'{address(k)}:{PORT}' for k in range(1, len(names))))
            finally:
                for server in servers:
                    server.kill()
                    server.wait()
        print(json.dumps(found), flush=True)
    return found


def _bench(llama: Path, file: Path, *prefix: str, threads: int = 1, rpc: str = '') -> float:
    """Return the milliseconds that llama.cpp takes for a token."""
    text = _run(*prefix, str(llama / 'llama-bench'), '-m', str(file), '-t', str(threads), '-p',
                '0', '-n', str(TOKENS), '-r', '3', '-o', 'json',
                *(('-ngl', '99', '--rpc', rpc) if rpc else ()))
    return 1e3 / float(json.loads(text[text.index('['):])[0]['avg_ts'])


def _ours_alone() -> float:
    """Return the milliseconds that one process with two threads takes for a token."""
    text = _run('intradp', 'language', 'run', 'smollm2', 'Once upon a time', '--raw',
                '--max-tokens', str(TOKENS), '--threads', '2', '--json')
    return float(json.loads(text)['ms_per_token'])


def _run(*words: str) -> str:
    done = subprocess.run(words, text=True, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def main() -> None:
    """Run the parts that are named."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('parts', nargs='+', choices=('airllm', 'llama.cpp', 'answer'),
                        metavar='PART')
    parser.add_argument('--llama', type=Path, default=Path('bin'), metavar='FOLDER')
    parser.add_argument('--folder', type=Path, help=argparse.SUPPRESS)
    parser.add_argument('--prompt', type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.parts == ['answer']:
        with redirect_stdout(sys.stderr):  # it prints, too
            made = answer(args.folder, args.prompt)
        print(json.dumps(made), flush=True)
        return
    for part in args.parts:
        with tempfile.TemporaryDirectory() as folder:
            found = {'airllm': airllm, 'llama.cpp': llama_cpp}[part](Path(folder), args.llama)
        print(part, json.dumps(found, indent=1), flush=True)


if __name__ == '__main__':
    main()
