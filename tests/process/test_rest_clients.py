"""One API server is asked with an event loop and without one: the same answers, refusals and silence."""

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lab.exchange.rest.blocking_client import BlockingRestClient
from lab.exchange.rest.client import RestClient
from lab.exchange.rest.endpoint import Endpoint, NoAnswer
from lab.exchange.rest.kubeconfig import Access
from services.api.errors import Forbidden, TooManyRequests


class Answers(BaseHTTPRequestHandler):
    def do_GET(self):
        status = {"/forbidden": 403, "/busy": 429}.get(self.path, 200)
        body = b"{" if self.path == "/torn" else b'{"message": "no", "path": "%s"}' % self.path.encode()
        self.server.tokens.append(self.headers.get("Authorization", ""))
        self.send_response(status)
        if status == 429:
            self.send_header("Retry-After", "7")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        server.tokens = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def in_a_loop(endpoint, *words):
    async def get():
        rest = RestClient(endpoint)
        try:
            return await rest.get(*words)
        finally:
            await rest.close()

    return asyncio.run(get())


def without_a_loop(endpoint, *words):
    return BlockingRestClient(endpoint).get(*words)


@pytest.fixture(params=[in_a_loop, without_a_loop])
def get(request, server):
    def get(*words, **access):
        address = f"http://127.0.0.1:{server.server_address[1]}"
        return request.param(Endpoint(Access(**{"server": address, "token": "t"} | access)), *words)

    return get


def test_what_of_a_query_is_empty_is_left_out(get):
    assert get("/pods", {"at": "", "limit": None, "fieldSelector": "a=b,c"})["path"] == "/pods?fieldSelector=a%3Db%2Cc"


def test_a_token_is_shown_where_there_is_one(get, server, tmp_path):
    (tmp_path / "token").write_text("of-file\n")
    get("/")
    get("/", token="")
    get("/", token="", token_file=tmp_path / "token")

    assert server.tokens == ["Bearer t", "", "Bearer of-file"]


def test_a_refusal_is_the_error_that_its_code_means(get):
    with pytest.raises(Forbidden, match="no"):
        get("/forbidden")
    with pytest.raises(TooManyRequests) as busy:
        get("/busy")
    assert busy.value.retry_after_s == 7


def test_no_answer_names_the_server(get):
    with pytest.raises(NoAnswer, match=r"/torn: its answer is no JSON"):
        get("/torn")
    with pytest.raises(NoAnswer, match=r"the API server at http://127.0.0.1:9 does not answer: .*(refused|Connect)"):
        get("/", server="http://127.0.0.1:9")
