"""HTTP clients for servers on this machine."""

import ssl

import httpx2
import openai

NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def local_client(base_url: str = "") -> httpx2.AsyncClient:
    """Open a client that ignores proxies and trusts no certificate.

    A client of `httpx2` loads the certificates of the machine by default, which takes 20 ms of CPU.
    """
    return httpx2.AsyncClient(base_url=base_url, trust_env=False, verify=NO_CERTIFICATES)


def library_client(base_url: str, api_key: str) -> openai.AsyncOpenAI:
    """Open OpenAI's library for a gateway on this machine; like `local_client` without certificates."""
    return openai.AsyncOpenAI(
        base_url=base_url,
        api_key=api_key,
        max_retries=0,
        http_client=openai.DefaultAsyncHttpxClient(trust_env=False, verify=NO_CERTIFICATES),
    )
