"""Certificates of an authority of our own, in all the forms that librdkafka's suite reads, made by ``openssl``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from proof.compat.sources import called, needed_tool

__all__ = ["Certificates", "made_certificates"]

_PASSWORD = "pencil"
_HOST = "subjectAltName=IP:127.0.0.1,DNS:localhost"


@dataclass(frozen=True, slots=True)
class Certificates:
    """Where they are."""

    gateway_options: tuple[str, ...]
    """Of a gateway that lets in whoever has a certificate of this authority."""
    client_settings: str
    """Lines of librdkafka's settings."""
    environment: Mapping[str, str]
    """What librdkafka's suite asks for."""


def made_certificates(folder: Path) -> Certificates:
    """Make an authority, and the certificates of a gateway and of a client. Raises ``SuiteUnavailableError``."""
    openssl = needed_tool("openssl", "a test of librdkafka's suite")
    folder.mkdir(parents=True, exist_ok=True)

    def run(what: str, *arguments: str) -> None:
        called([openssl, *what.split(), *arguments], f"openssl {what}", folder=folder)

    new = ("-newkey", "rsa:2048", "-days", "2")
    run("req -x509 -nodes", *new, "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    (folder / "host.ext").write_text(f"{_HOST}\n")
    for name, key, extensions in (
        ("gateway", ("-nodes",), ("-extfile", "host.ext")),
        ("client", ("-passout", f"pass:{_PASSWORD}"), ()),
    ):
        run("req", *new[:2], *key, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", *new[2:], *extensions)
        run("x509 -req", "-in", f"{name}.csr", *signed, "-out", f"{name}.pem")
    given = ("-passin", f"pass:{_PASSWORD}")
    run("x509 -outform DER", "-in", "ca.pem", "-out", "ca.der")
    run("x509 -outform DER", "-in", "client.pem", "-out", "client.der")
    run("rsa -outform DER", "-in", "client.key", *given, "-out", "client-key.der")
    store = ("-in", "client.pem", "-inkey", "client.key", "-certfile", "ca.pem", "-out", "client.p12")
    run("pkcs12 -export", *store, *given, "-passout", f"pass:{_PASSWORD}")
    files = {
        "SSL_pkcs": "client.p12",
        "SSL_pub_der": "client.der",
        "SSL_pub_pem": "client.pem",
        "SSL_priv_der": "client-key.der",
        "SSL_priv_pem": "client.key",
        "SSL_ca_der": "ca.der",
        "SSL_ca_pem": "ca.pem",
        "SSL_all_cas_pem": "ca.pem",
    }
    place = {name: str(folder / file) for name, file in files.items()}
    own = {"--tls-cert": "gateway.pem", "--tls-key": "gateway.key", "--tls-client-ca": "ca.pem"}
    return Certificates(
        tuple(one for option, file in own.items() for one in (option, str(folder / file))),
        "security.protocol=ssl\n"
        f"ssl.ca.location={place['SSL_ca_pem']}\n"
        f"ssl.certificate.location={place['SSL_pub_pem']}\n"
        f"ssl.key.location={place['SSL_priv_pem']}\n"
        f"ssl.key.password={_PASSWORD}\n",
        {**place, "SSL_password": _PASSWORD},
    )
