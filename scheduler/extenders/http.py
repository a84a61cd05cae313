"""The transport to extenders by HTTP or HTTPS, with connections kept alive.

Source: upstream `staging/src/k8s.io/kube-scheduler/extender/v1/types.go`, `pkg/scheduler/extender.go`.
"""

import ssl
import tempfile

import aiohttp

from scheduler.configuration.document import Extender, ExtenderTLS
from scheduler.preemption.candidates import ExtenderError
from services.api.seams import Tracer
from services.telemetry.calls import Call, http_call


class HttpTransport:
    """Posts JSON; an answer other than 200 is an error. Each call is a CLIENT span, named in its `traceparent`."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext | bool] = {}

    async def post(self, extender: Extender, url: str, body: bytes, timeout_s: float, traceparent: str) -> bytes:
        """Return the answer's body. Raises: ExtenderError."""
        with http_call(self._tracer, "POST", url, traceparent) as call:
            return await self._post(extender, url, body, timeout_s, call)

    async def _post(self, extender: Extender, url: str, body: bytes, timeout_s: float, call: Call) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(headers={"Content-Type": "application/json"})
        tls = extender.tls_config
        try:
            async with self._session.post(
                url,
                data=body,
                headers=call.headers,
                timeout=aiohttp.ClientTimeout(total=timeout_s),
                ssl=self._context(extender),
                server_hostname=tls.server_name or None if tls is not None else None,
            ) as answer:
                call.on_answered(answer.status)
                if answer.status != 200:
                    verb = url.rpartition("/")[2]
                    raise ExtenderError(f"failed {verb} with extender at URL {url}, code {answer.status}")
                return await answer.read()
        except TimeoutError:
            raise ExtenderError(f'Post "{url}": no answer within {timeout_s:g} s') from None
        except (aiohttp.ClientError, OSError) as error:
            raise ExtenderError(f'Post "{url}": {error}') from error

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _context(self, extender: Extender) -> ssl.SSLContext | bool:
        key = extender.url_prefix
        if key not in self._contexts:
            self._contexts[key] = _context(extender)
        return self._contexts[key]


def _context(extender: Extender) -> ssl.SSLContext | bool:
    """Return what a connection is verified with; as upstream, HTTPS that names no authority is not verified."""
    tls = extender.tls_config or ExtenderTLS()
    if extender.tls_config is None and not extender.enable_https:
        return True
    has_authority = bool(tls.ca_data or tls.ca_file)
    try:
        context = ssl.create_default_context(
            cafile=tls.ca_file if tls.ca_file and not tls.ca_data else None,
            cadata=tls.ca_data.decode("ascii") if tls.ca_data else None,
        )
        if tls.insecure or (extender.enable_https and not has_authority):
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if tls.cert_data:
            # The library reads own certificates from files only.
            with tempfile.NamedTemporaryFile(suffix=".pem") as both:
                both.write(tls.cert_data + b"\n" + tls.key_data)
                both.flush()
                context.load_cert_chain(both.name)
        elif tls.cert_file:
            context.load_cert_chain(tls.cert_file, tls.key_file or None)
    except (OSError, ValueError) as error:
        raise ExtenderError(f"extender {extender.url_prefix}: tlsConfig: {error}") from error
    return context
