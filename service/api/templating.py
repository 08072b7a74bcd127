"""The routes of templates: put, list, look at, delete."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.responses import Response

from okl import errors

from ..templates.template import Template
from . import wire
from .answers import TemplateAnswer, TemplateList
from .body import BodyRoute, reply
from .dependencies import TemplatesDep
from .problems import responses
from .routes import BODY, STORE
from .schemas import TemplateBody
from .values import OwnName

templating = APIRouter(tags=["templates"])
templating_bodies = APIRouter(route_class=BodyRoute, tags=["templates"])

TemplatePath = Annotated[OwnName, Path(description="Name of the template.")]


@templating_bodies.put(
    "/templates/{template}",
    response_model=TemplateAnswer,
    responses=responses(*BODY, *STORE, errors.InvalidConfig, errors.UnknownLearner, errors.LimitReached),
    summary="Put a template",
)
async def put_template(body: TemplateBody, template: TemplatePath, templates: TemplatesDep) -> Response:
    """In place of the one of its name. From now on, within two seconds at every worker, a session whose name begins with the
    prefix is made when it is first predicted or told a truth; of several templates that of the longest prefix makes it."""
    definition = wire.definition_named(body.prefix, body.session)
    made = Template(template, body.prefix, definition, body.most, body.idle_s)
    await templates.put(made)
    return reply(wire.template(made))


@templating.get("/templates", response_model=TemplateList, responses=responses(*STORE), summary="List the templates")
async def list_templates(templates: TemplatesDep) -> Response:
    """In the order of their names."""
    return reply({"templates": [wire.template(one) for one in await templates.all()]})


@templating.get(
    "/templates/{template}",
    response_model=TemplateAnswer,
    responses=responses(errors.InvalidInput, errors.TemplateNotFound, *STORE),
    summary="Look at a template",
)
async def inspect_template(template: TemplatePath, templates: TemplatesDep) -> Response:
    """What it makes, of which names, and how many."""
    return reply(wire.template(await templates.find(template)))


@templating.delete(
    "/templates/{template}",
    status_code=204,
    responses=responses(errors.InvalidInput, errors.TemplateNotFound, *STORE),
    summary="Delete a template",
)
async def delete_template(template: TemplatePath, templates: TemplatesDep) -> Response:
    """The sessions that it has made stay, and are deleted by nobody but you."""
    await templates.drop(template)
    return Response(status_code=204)
