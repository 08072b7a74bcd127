"""The routes of templates: put, list, inspect, delete."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from okl import errors

from ..templates.template import Template
from . import wire
from .answers import TemplateAnswer, TemplateList
from .body_route import BodyRoute, reply
from .dependencies import TemplatesDep
from .problems import responses
from .queries import KNOWN_QUERY
from .routes import BODY, STORE
from .schemas import TemplateBody
from .values import OwnName

router = APIRouter(tags=["templates"], dependencies=[KNOWN_QUERY], responses=responses(errors.InvalidInput))
json_bodies = APIRouter(route_class=BodyRoute, tags=["templates"])

TemplatePath = Annotated[OwnName, Path(description="Name of the template.")]


@json_bodies.put(
    "/templates/{template}",
    response_model=TemplateAnswer,
    responses=responses(*BODY, *STORE, errors.InvalidConfig, errors.UnknownLearner, errors.LimitReached),
    summary="Create or replace a template",
)
async def put_template(body: TemplateBody, template: TemplatePath, templates: TemplatesDep) -> Response:
    """Create the template, or replace the one of that name. From then on, within two seconds at every worker, a session whose
    name begins with the prefix is created at its first prediction or truth. If several templates match, the longest prefix
    wins."""
    definition = wire.definition_named(body.prefix, body.session)
    new = Template(template, body.prefix, definition, body.most, body.idle_s)
    await templates.put(new)
    return reply(wire.template(new))


@router.get("/templates", response_model=TemplateList, responses=responses(*STORE), summary="List the templates")
async def list_templates(templates: TemplatesDep) -> Response:
    """Sorted by name."""
    return reply({"templates": [wire.template(one) for one in await templates.all()]})


@router.get(
    "/templates/{template}",
    response_model=TemplateAnswer,
    responses=responses(errors.InvalidInput, errors.TemplateNotFound, *STORE),
    summary="Inspect a template",
)
async def inspect_template(template: TemplatePath, templates: TemplatesDep) -> Response:
    """The prefix of its sessions' names, their settings, and how many there may be."""
    return reply(wire.template(await templates.find(template)))


@router.delete(
    "/templates/{template}",
    status_code=204,
    responses=responses(errors.InvalidInput, errors.TemplateNotFound, *STORE),
    summary="Delete a template",
)
async def delete_template(template: TemplatePath, templates: TemplatesDep) -> Response:
    """The sessions that it has created stay until you delete them."""
    await templates.drop(template)
    return Response(status_code=204)
