"""`kubectl logs -f`: the kubelet's process gives what is written as it is written, until the run ends."""

from services.api.meta import Key
from services.runtime.health import HttpRequest


async def followed(w, pod, query):
    route = next(handler for path, handler in w.process.http_routes() if path.startswith("/containerLogs"))
    status, _, body = route(HttpRequest("", {"namespace": "default", "pod": pod, "container": "main"}, query))
    assert status == 200, body
    at = {}
    async for piece in body:
        for line in piece.decode().splitlines():
            at[line.split(" ", 1)[1] if line.startswith("20") else line] = w.clock.now()
    return at


def test_a_log_is_followed_until_its_run_ends_and_no_line_comes_twice(simulate):
    async def scenario(w):
        await w.create("p", run="exit 3 after 24s")
        pod = await w.until_pod("p", lambda p: p["status"]["phase"] == "Running")
        assert pod
        began = w.clock.now()
        at = await followed(w, "p", {"follow": "true"})
        return {line: round(moment - began) for line, moment in at.items()}

    assert simulate(scenario) == {
        "container main started, restart 0": 0,
        "still running after 10 s": 10,
        "still running after 20 s": 20,
        "exit 3": 24,
    }


def test_following_ends_with_the_pod_and_with_the_bytes_that_were_asked_for(simulate):
    async def scenario(w):
        await w.create("p")
        await w.until_pod("p", lambda p: p["status"]["phase"] == "Running")
        few = await followed(w, "p", {"follow": "true", "limitBytes": "36"})
        await w.admin.delete("pods", Key("default", "p"), grace_period_s=0)
        return few, len(await followed(w, "p", {"follow": "true"}))

    few, lines = simulate(scenario)
    assert list(few) == ["containe"]
    assert lines >= 1


def test_the_kubelet_refuses_in_its_own_words(simulate):
    async def scenario(w):
        await w.create("p")
        await w.until_pod("p", lambda p: p["status"]["phase"] == "Running")
        route = next(handler for path, handler in w.process.http_routes() if path.startswith("/containerLogs"))
        of = {"namespace": "default", "pod": "p", "container": "main"}
        asked = [
            (of, {"previous": "true"}),
            ({**of, "container": "x"}, {}),
            ({**of, "pod": "q"}, {}),
            (of, {"tailLines": "x"}),
        ]
        return [route(HttpRequest("", params, query)) for params, query in asked]

    assert [(status, body.decode()) for status, _, body in simulate(scenario)] == [
        (400, 'previous terminated container "main" in pod "p" not found\n'),
        (400, 'container "x" in pod "p" is not available\n'),
        (404, 'pod "q" does not exist\n'),
        (400, "tailLines='x': want a number\n"),
    ]


def test_the_output_of_a_known_command_is_its_log(simulate):
    command = ["sh", "-c", "sleep 5; echo to $WHOM; echo bad >&2; sleep 3; printf end; exit 4"]
    env = [{"name": "WHOM", "value": "all"}]
    container = {"name": "main", "image": "busybox", "command": command, "env": env}

    async def scenario(w):
        await w.create("p", spec={"containers": [container], "restartPolicy": "Never"})
        await w.until_pod("p", lambda p: p["status"]["phase"] == "Running")
        began = w.clock.now()
        at = await followed(w, "p", {"follow": "true"})
        pod = await w.until_pod("p", lambda p: p["status"]["phase"] == "Failed")
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"]
        return {line: round(moment - began) for line, moment in at.items()}, ended

    assert simulate(scenario) == ({"to all": 5, "bad": 5, "end": 8}, 4)
