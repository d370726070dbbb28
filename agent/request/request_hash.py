"""Sans-IO: a short mark of what a model was asked: requests that say the same have the same mark."""

import hashlib

import msgspec

from agent.model.contract import ModelRequest

_DIGEST_BYTES = 16  # bytes
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def hash_request(request: ModelRequest) -> str:
    """Mark a request by all that it says, whatever service it goes to.

    Of pictures only the paths count, which its rows name: their bytes would cost more than all else.
    """
    said = msgspec.structs.replace(request, pictures={})
    try:
        encoded = _encode(said)
    except UnicodeEncodeError:  # a lone surrogate, which models and tools do send
        encoded = repr(said).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(encoded, digest_size=_DIGEST_BYTES).hexdigest()
