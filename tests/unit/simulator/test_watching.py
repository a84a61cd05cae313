"""What listwatchresources sends when watches end, by an API server that is made up."""

import asyncio
import json

import pytest

from lab.simulator.watching import relay
from services.api.errors import Expired
from services.api.wire import Response, WatchEvent


def node(name, rv):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "resourceVersion": str(rv)}}


class Server:
    """Lists one node at version 9; `watches` says what each watch does: events, or an error."""

    def __init__(self, *watches):
        self.watches, self.asked = list(watches), []

    async def call(self, request):
        self.asked.append("list")
        body = {"metadata": {"resourceVersion": "9"}, "items": [node("n1", 4)]}
        return Response(code=200, body=json.dumps(body).encode())

    async def watch(self, request):
        self.asked.append(request.resource_version)
        for each in self.watches.pop(0) if self.watches else ():
            if isinstance(each, Exception):
                raise each
            kind, name, rv = each
            yield [WatchEvent(type=kind, rv=rv, body=json.dumps(node(name, rv)).encode())]
        if not self.watches:
            await asyncio.Event().wait()


def sent(server, since, count):
    """What a reader gets that goes away at the last of so many lines."""
    events = []

    async def write(line):
        events.append(json.loads(line))
        if len(events) == count:
            raise ConnectionResetError

    async def main():
        with pytest.raises(ExceptionGroup) as ended:
            await relay(server, {"nodes": since}, write)
        assert [type(each) for each in ended.value.exceptions] == [ConnectionResetError]
        assert asyncio.all_tasks() == {asyncio.current_task()}, "nothing is watched any more"

    asyncio.run(main())
    return [(each["EventType"], each["Obj"].get("code") or each["Obj"]["metadata"]["name"]) for each in events]


def test_without_a_version_a_list_comes_first_and_the_watch_begins_where_it_ended():
    server = Server([("MODIFIED", "n1", 11), ("BOOKMARK", "", 12), ("DELETED", "n1", 13)])

    assert sent(server, "", 3) == [("ADDED", "n1"), ("MODIFIED", "n1"), ("DELETED", "n1")]
    assert server.asked[:2] == ["list", "9"]


def test_with_a_version_only_what_came_later_is_sent_and_a_watch_that_ends_goes_on_where_it_was():
    server = Server([("ADDED", "n2", 5), ("BOOKMARK", "", 7)], [("ADDED", "n3", 8)])

    assert sent(server, "4", 2) == [("ADDED", "n2"), ("ADDED", "n3")]
    assert server.asked == ["4", "7"]


@pytest.mark.parametrize("gone", [Expired("too old"), ("ERROR", "", 0)])
def test_a_version_that_is_forgotten_is_an_error_line_and_a_new_list(gone):
    server = Server([gone], [("ADDED", "n2", 10)])

    assert sent(server, "2", 3) == [("ERROR", 410), ("ADDED", "n1"), ("ADDED", "n2")]
    assert server.asked == ["2", "list", "9"]
