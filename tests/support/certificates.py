"""Two TLS certificates for a server on this machine: clients can trust the first, and nobody trusts the second.

made = Certificates.make(folder)
context = made.good            # a client trusts it with SSL_CERT_FILE=made.trusted
"""

from __future__ import annotations

import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Certificates:
    """TLS contexts of a listener. Clients that trust the PEM file `trusted` accept `good`; none accepts `bad`."""

    trusted: Path
    good: ssl.SSLContext
    bad: ssl.SSLContext

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        """Make two self-signed certificates for 127.0.0.1. Skips the test if openssl is missing."""
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not installed")
        contexts = []
        for name in ("good", "bad"):
            key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
            command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=faulty"]
            command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
            subprocess.run(command, check=True, capture_output=True)
            contexts.append(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            contexts[-1].load_cert_chain(certificate, key)
        return cls(folder / "good.pem", *contexts)
