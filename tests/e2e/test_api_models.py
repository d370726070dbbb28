"""The list of models with `model.list`, over a whole gateway."""

from pathlib import Path

from gateway.settings import GatewaySettings, RouteSettings, Settings
from tests.e2e.api_kit import served
from tests.e2e.gateway_kit import Nothing
from tests.fakes.gateway_settings import scripted_model
from tests.fakes.model_server import ModelServer


async def test_all_models_of_the_service_are_listed_on_demand(tmp_path: Path) -> None:
    async with ModelServer(models=("other", "scripted", "big")) as model:
        settings = Settings(
            gateway=GatewaySettings(drain_seconds=0),
            model=scripted_model(model, list=True),
            route=(RouteSettings(match="telegram:*", model="vendor/small"),),
            platforms={"memory": Nothing()},
        )
        async with served(tmp_path, model, settings=settings) as api:
            listed = await api.client.models.list()
            assert [each.id for each in listed.data] == [
                "scripted",
                "vendor/small",
                "other",
                "big",
            ]
            assert (await api.client.models.retrieve("big")).owned_by == "openai"
