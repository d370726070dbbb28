"""Sans-IO: the address of a chat, and the text that stands for the address in the database."""

import functools

import msgspec


class Address(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place where messages can be shown."""

    platform: str
    chat: str
    account: str = ""
    thread: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Address).decode


def write_address(address: Address) -> str:
    """Encode an address for the database; equal addresses give equal text, which finds the rows."""
    return _encode(address).decode()


@functools.lru_cache(maxsize=1024)
def read_address(text: str) -> Address:
    """Decode an address from the database."""
    return _decode(text)
