"""Sans-IO: hash of a model request, equal for requests with equal content."""

import hashlib

import msgspec

from agent.model.contract import ModelRequest

_DIGEST_BYTES = 16
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


def hash_request(request: ModelRequest) -> str:
    """Hash the content of a request, independent of its service.

    Pictures count only by their paths, which the rows contain: hashing their bytes would cost more
    than everything else.
    """
    content = msgspec.structs.replace(request, pictures={})
    try:
        encoded = _encode(content)
    except UnicodeEncodeError:  # lone surrogates occur in the output of models and tools
        encoded = repr(content).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(encoded, digest_size=_DIGEST_BYTES).hexdigest()
