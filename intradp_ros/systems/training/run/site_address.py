# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The address of this machine at which others of its site reach what training listens on."""
from __future__ import annotations

import ipaddress
import socket

#: An address for examples (RFC 5737), so one that lies behind the default route.
_ELSEWHERE = '192.0.2.1'


def site_address(given: str, towards: str = _ELSEWHERE) -> str:
    """
    Return an IP address: the one given, or that of the interface by which another is reached.

    Where nothing else can be reached it is the loopback's.  No packet is sent.

    :raises ValueError: if what is given is not an IP address.
    """
    if given:
        return str(ipaddress.ip_address(given))
    family = socket.AF_INET6 if ':' in towards else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((towards, 9))
            return str(probe.getsockname()[0])
        except OSError:
            return '127.0.0.1'
