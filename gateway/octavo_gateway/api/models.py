"""GET /v1/models and /v1/models/{id}."""

from __future__ import annotations

from octavo_gateway.api.context import ApiContext
from octavo_gateway.protocol.models import ModelCard, ModelList


def list_models(context: ApiContext) -> ModelList:
    return ModelList(data=[_card(context, name) for name in context.settings.served_names])


def get_model(context: ApiContext, name: str) -> ModelCard:
    """The card of one model; a 404 for any other name."""
    context.check_model(name)
    return _card(context, name)


def _card(context: ApiContext, name: str) -> ModelCard:
    model = context.engine.model
    return ModelCard(id=name, created=context.created, root=model.root, max_model_len=model.max_model_len)
