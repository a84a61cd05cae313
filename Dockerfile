# One image for every component and for the commands; `keplab` is its entry point. Every builder takes it: no syntax line, no
# heredoc, no --mount.
#
#   BASE            an image with Python 3.11 or newer and its venv module; pin it by digest for a release
#   PIP_INDEX_URL   package index; empty: the base's own
#   PIP_EXTRA_ARGS  further words for pip install, for example --find-links /wheels --no-index
ARG BASE=python:3.11-slim

FROM ${BASE} AS packages
ARG PIP_INDEX_URL=
ARG PIP_EXTRA_ARGS=
COPY requirements-runtime.lock requirements.lock /tmp/
# pip takes an empty PIP_INDEX_URL for an index without a name. setuptools, as the lock has it, builds the package below;
# tests of the numeric libraries are a sixth of all that is installed.
RUN [ -n "$PIP_INDEX_URL" ] || unset PIP_INDEX_URL; \
    sed -n '/^setuptools==/,/[^\\]$/p' /tmp/requirements.lock >/tmp/build.lock && \
    python3 -m venv /opt/keplab && \
    /opt/keplab/bin/python -m pip install --quiet --no-cache-dir --disable-pip-version-check \
      --only-binary :all: --require-hashes ${PIP_EXTRA_ARGS} -r /tmp/requirements-runtime.lock -r /tmp/build.lock && \
    find /opt/keplab/lib -type d -name tests -path '*/site-packages/*' -prune -exec rm -rf {} +
COPY pyproject.toml setup.py README.md /src/
COPY protos /src/protos
COPY services /src/services
COPY lab /src/lab
COPY apiserver_fake /src/apiserver_fake
COPY scheduler /src/scheduler
COPY kubelet /src/kubelet
COPY claim_controller /src/claim_controller
COPY experiments /src/experiments
COPY deploy/containers /opt/keplab/containers
RUN /opt/keplab/bin/python -m pip install --quiet --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation /src && \
    /opt/keplab/bin/python -m pip uninstall --quiet --yes setuptools pip && \
    /opt/keplab/bin/python -m compileall -qf --invalidation-mode unchecked-hash /opt/keplab/lib

FROM ${BASE}
# Above 10,000: no user of the host, whatever the engine maps. A fresh volume takes over these folders' owner.
RUN mkdir -p /data /runs /switches /credentials/authority /credentials/apiserver /credentials/scheduler /credentials/controllers \
      /credentials/claim-controller /credentials/kubelet /credentials/admin /credentials/lab /credentials/monitor /credentials/ui /credentials/etcd-0 /credentials/etcd-1 /credentials/etcd-2 \
      /members/etcd-0 /members/etcd-1 /members/etcd-2 /members/prometheus /telemetry/events /telemetry/spans && \
    chown -R 10001:10001 /data /runs /switches /credentials /members /telemetry && chmod -R go-rwx /data /credentials /members /telemetry
COPY --from=packages /opt/keplab /opt/keplab
WORKDIR /app
USER 10001:10001
ENV PATH=/opt/keplab/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    KEPLAB_HEALTH_PORT=8081
# A check ends itself within half a minute, so the engine never gives one up and starts the next beside it.
HEALTHCHECK --interval=2s --timeout=120s --start-period=60s --retries=5 \
  CMD ["timeout", "-s", "KILL", "30", "/bin/bash", "/opt/keplab/containers/healthy.sh"]
ENTRYPOINT ["keplab"]
CMD ["--help"]
