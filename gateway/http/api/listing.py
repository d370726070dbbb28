"""Sans-IO: models as `/v1/models` lists them."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model that may be asked for by its name."""

    id: str
    object: Literal["model"] = "model"
    created: Annotated[int, Meta(description="Since when the gateway runs, in seconds of 1970.")]
    owned_by: Annotated[str, Meta(description="Over which provider it is reached.")]


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """The configured model, and those of the routes."""

    object: Literal["list"] = "list"
    data: list[Model]
