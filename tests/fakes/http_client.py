"""HTTP client for servers on this machine."""

import ssl

import httpx2

_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def local_client(base_url: str = "") -> httpx2.AsyncClient:
    """Open a client that ignores proxies and trusts no certificate.

    A client of `httpx2` loads the certificates of the machine by default, which takes 20 ms of CPU.
    """
    return httpx2.AsyncClient(base_url=base_url, trust_env=False, verify=_NO_CERTIFICATES)
