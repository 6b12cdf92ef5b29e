#!/bin/sh
# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0
#
# For a person with a GPU (a Jetson, a server with CUDA): is everything exact on it, and how fast is
# it? Runs operators, splits and inferences of both sides on the device, and prints what it took.
# Nothing is sent anywhere. Ends with 0 if all is well; OUT has the whole output.
#
# Usage: check_gpu.sh [DEVICE] [OUT]     (default: cuda, out/check_gpu.txt)

device=${1:-cuda}
out=${2:-out/check_gpu.txt}
model=intradp_ros.perception.oriented_energy:oriented_energy
input='--input 1x3x144x336 --dtype uint8'
python=${PYTHON:-python3}
failed=

mkdir -p "$(dirname "$out")"
: > "$out"

step() {
    title=$1
    shift
    printf '\n== %s\n$ %s\n' "$title" "$*" >> "$out"
    if "$@" >> "$out" 2>&1; then
        echo "ok      $title"
    else
        echo "FAILED  $title"
        failed=yes
    fi
}

seen() {
    "$python" - "$device" <<'END'
import sys

import torch

device = torch.device(sys.argv[1])
print('torch', torch.__version__, 'CUDA', torch.version.cuda)
a = torch.randn(256, 256, device=device)
print('product of matrices differs by', (a @ a - (a.cpu() @ a.cpu()).to(device)).abs().max().item())
if device.type == 'cuda':
    print(torch.cuda.get_device_name(device), torch.cuda.get_device_properties(device))
END
}

step 'the device computes' seen
if [ -n "$failed" ]; then
    tail -n 1 "$out"
    echo "PyTorch cannot use '$device': install the build of torch for it (on a Jetson: NVIDIA's)"
    exit 1
fi
# shellcheck disable=SC2086
{
    step 'every split is exact' intradp verify $model $input --device "$device"
    step 'operators are measured' intradp profile $model $input --device "$device" --fresh
    step 'both sides share on it' intradp run $model $input --mbps 100 --device "$device"
}
echo "the figures are in $out"
test -z "$failed"
