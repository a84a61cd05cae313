"""Answers with gzip, which say the same as those without."""

import asyncio
import json
import re

from apiserver_fake.rest.handlers.answers import PART_OBJECTS, STREAMED_ABOVE
from apiserver_fake.rest.http import GZIP_MIN_BYTES
from tests.component.apiserver_fake.test_access import LoopClock, a_cluster

MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
COUNT = STREAMED_ABOVE + 20
AGE = re.compile(rb'"[0-9]+s"]')
"""The last cell of a row, which is another one a second later."""
TEXT = "x" * (GZIP_MIN_BYTES // 100)


class StandingClock(LoopClock):
    """A clock on whose wall no time passes, so that two answers show the same age."""

    def wall(self):
        return 1_700_000_000.0


def run_with_maps(tmp_path, scenario):
    """Run a coroutine function with a function that asks a server with many ConfigMaps."""

    async def whole():
        async with a_cluster(tmp_path, clock=StandingClock()) as cluster:

            async def ask(method, path, body=None, *, coding="identity", accept="application/json"):
                headers = {
                    "Authorization": "Bearer admin-token",
                    "Accept-Encoding": coding,
                    "Accept": accept,
                    "Content-Type": "application/json",
                }
                data = None if body is None else json.dumps(body)
                async with cluster.client.request(method, path, data=data, headers=headers) as answer:
                    return answer.headers, await answer.read()

            for number in range(COUNT):
                await ask("POST", MAPS, {"metadata": {"name": f"m{number:04d}"}, "data": {"text": TEXT}})
            return await scenario(ask)

    return asyncio.run(asyncio.wait_for(whole(), 60))


def test_a_long_list_says_the_same_with_and_without_compression_before_and_after_a_change(tmp_path):
    async def scenario(ask):
        pairs = []
        for number in range(4):
            for accept in ("application/json", METADATA, TABLE):
                _, plain = await ask("GET", MAPS, accept=accept)
                for _ in range(2):
                    headers, unpacked = await ask("GET", MAPS, accept=accept, coding="gzip")
                    pairs.append((accept, plain, unpacked, headers))
            last = {"metadata": {"name": f"m{COUNT - 1:04d}"}, "data": {"number": f"{number}"}}
            await (ask("DELETE", f"{MAPS}/m0000") if number == 1 else ask("PUT", f"{MAPS}/m{COUNT - 1:04d}", last))
        return pairs

    for accept, plain, unpacked, headers in run_with_maps(tmp_path, scenario):
        assert headers["Content-Encoding"] == "gzip"
        assert headers["Vary"] == "Accept-Encoding"
        assert AGE.sub(b'"age"]', unpacked) == AGE.sub(b'"age"]', plain), accept
    assert COUNT > PART_OBJECTS, "the list has more than one part"


def test_parts_of_a_list_are_compressed_once_for_all_clients(tmp_path, monkeypatch):
    sizes = []

    async def scenario(ask):
        from apiserver_fake.rest import compression

        part_of = compression.part_of
        monkeypatch.setattr(compression, "part_of", lambda text: sizes.append(len(text)) or part_of(text))
        for _ in range(2):
            await ask("GET", MAPS, coding="gzip")
        again = len([size for size in sizes if size > 10_000])
        await ask("DELETE", f"{MAPS}/m{COUNT - 1:04d}")
        await ask("GET", MAPS, coding="gzip")
        return again, len([size for size in sizes if size > 10_000])

    assert run_with_maps(tmp_path, scenario) == (2, 3), "two parts, then the one that has changed"


def test_a_short_list_is_compressed_as_a_whole_from_its_size_on(tmp_path):
    async def scenario(ask):
        _, plain = await ask("GET", f"{MAPS}?limit=200")
        headers, unpacked = await ask("GET", f"{MAPS}?limit=200", coding="gzip")
        small, _ = await ask("GET", f"{MAPS}?limit=2", coding="gzip")
        _, text = await ask("GET", f"{MAPS}?limit=200", coding="gzip", accept="application/yaml")
        return plain, headers, unpacked, small, text

    plain, headers, unpacked, small, text = run_with_maps(tmp_path, scenario)

    assert headers["Content-Encoding"] == "gzip"
    assert headers["Vary"] == "Accept-Encoding"
    assert int(headers["Content-Length"]) < len(plain) // 10
    assert json.loads(unpacked)["items"] == json.loads(plain)["items"]
    assert unpacked.endswith(b"}\n")
    assert "Content-Encoding" not in small
    assert text.startswith(b"apiVersion") or b"\nitems:" in text
