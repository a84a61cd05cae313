"""Requests of reviews: SelfSubjectReview, TokenReview, access reviews and SelfSubjectRulesReview."""

from __future__ import annotations

import msgspec
from aiohttp import web

from apiserver_fake.registry.authorization import reviews
from apiserver_fake.registry.catalogue import Catalogue
from apiserver_fake.registry.decode import json_object
from apiserver_fake.registry.errors import method_not_allowed
from apiserver_fake.rest import media_types
from apiserver_fake.rest.handlers.path_rights import AuthorizingServer, PathRights
from apiserver_fake.rest.http import json_answer, json_from, read_body, trail_of
from services.api.errors import Forbidden
from services.api.identity import ANONYMOUS, Identity
from services.api.meta import Document, Resource
from services.api.wire import Request


class ReviewRequests:
    """Answers reviews."""

    def __init__(self, server: AuthorizingServer, catalogue: Catalogue, rights: PathRights) -> None:
        self._server, self._catalogue, self._rights = server, catalogue, rights

    async def review(
        self, request: web.BaseRequest, identity: Identity, review: Resource, namespace: str
    ) -> web.StreamResponse:
        """Answer the creation of a review. Raises: ApiError."""
        if request.method != "POST":
            self._rights.authorize_unserved(request, identity)
            raise method_not_allowed()
        media_types.negotiate(request.headers.get("Accept", ""))
        if self._server.access.is_rbac or review.kind not in reviews.OF_ONESELF:
            asked = Request(verb="create", resource=review.name, namespace=namespace)
            self._server.callers.authorize(identity, asked)
        elif identity.user == ANONYMOUS.user:
            raise Forbidden(f'{review.plural}.{review.group} is forbidden: User "{identity.user}" cannot create it')
        body = await read_body(request)
        question: Document = {}
        if review.kind != "SelfSubjectReview" and body:
            sent = await json_from(body, request.headers.get("Content-Type", ""))
            question = json_object(sent, "the body is not JSON", "the body is not an object")
        answer = reviews.answer(review, namespace, question, identity, self._server.callers, self._catalogue)
        body_bytes = msgspec.json.encode(answer)
        if (trail := trail_of(request)) is not None:
            trail.on_request_body(msgspec.json.encode(question))
            trail.on_response_body(body_bytes)
        return json_answer(body_bytes, status=201)
