#!/bin/sh
# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0
#
# Checks that this machine has what PyPI cannot bring: a suitable Python with its headers and the
# venv module, and compilers for C and C++. Prints what to install and fails if something lacks.
#
# Usage: check_machine.sh [PYTHON]

python=${1:-python3}
missing=

has() {
    command -v "$1" > /dev/null 2>&1
}

lacks() {
    echo "missing: $1" >&2
    case " $missing " in
        *" $2 "*) ;;
        *) missing="$missing $2" ;;
    esac
}

has cc || has gcc || lacks 'a C compiler' build-essential
has c++ || has g++ || lacks 'a C++ compiler' build-essential
has make || lacks make build-essential
if ! has "$python"; then
    lacks "$python" python3
    lacks 'the headers of Python' python3-dev
    lacks 'the module venv of Python' python3-venv
elif ! "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 15))'; then
    echo "$("$python" --version) does not do: the ROS wheels are built for Python 3.10 to 3.14." \
        'Name one of these, for example: make PYTHON=python3.12' >&2
    exit 1
else
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    "$python" -c 'import ensurepip' 2> /dev/null ||
        lacks "the module venv of $python" "python$version-venv"
    header=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h
    [ -e "$header" ] || lacks "$header" "python$version-dev"
fi

if [ -n "$missing" ]; then
    echo "install it with: sudo apt-get install$missing" >&2
    exit 1
fi
