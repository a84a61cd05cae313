# One image for every component; the command says which. Every builder takes it: no syntax line, no heredoc, no --mount.
#
#   BASE            an image with Python 3.11 or newer and its venv module; pin it by digest for a release
#   PIP_INDEX_URL   package index; empty: the base's own
#   PIP_EXTRA_ARGS  further words for pip install, for example --find-links /wheels --no-index
ARG BASE=python:3.11-slim

FROM ${BASE} AS packages
ARG PIP_INDEX_URL=
ARG PIP_EXTRA_ARGS=
COPY requirements-runtime.lock /tmp/requirements.lock
# pip takes an empty PIP_INDEX_URL for an index without a name.
RUN [ -n "$PIP_INDEX_URL" ] || unset PIP_INDEX_URL; \
    python3 -m venv /opt/keplab && \
    /opt/keplab/bin/python -m pip install --quiet --no-cache-dir --disable-pip-version-check \
      --only-binary :all: --require-hashes ${PIP_EXTRA_ARGS} -r /tmp/requirements.lock && \
    /opt/keplab/bin/python -m pip uninstall --quiet --yes pip setuptools
COPY protos /app/protos
COPY services /app/services
COPY apiserver_fake /app/apiserver_fake
COPY scheduler /app/scheduler
COPY kubelet /app/kubelet
COPY claim_controller /app/claim_controller
COPY benchmarks /app/benchmarks
COPY deploy/containers /app/containers
RUN PYTHONPATH=/app /opt/keplab/bin/python -m compileall -q /app /opt/keplab/lib

FROM ${BASE}
# Above 10,000: no user of the host, whatever the engine maps. A fresh volume takes over these folders' owner.
RUN mkdir -p /data /credentials/authority /credentials/apiserver /credentials/scheduler /credentials/controllers \
      /credentials/claim-controller /credentials/kubelet /credentials/admin /credentials/etcd-0 /credentials/etcd-1 /credentials/etcd-2 \
      /members/etcd-0 /members/etcd-1 /members/etcd-2 && \
    chown -R 10001:10001 /data /credentials /members && chmod -R go-rwx /data /credentials /members
COPY --from=packages /opt/keplab /opt/keplab
COPY --from=packages /app /app
WORKDIR /app
USER 10001:10001
ENV PATH=/opt/keplab/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/app \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    KEPLAB_HEALTH_PORT=8081
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 \
  CMD ["/opt/keplab/bin/python", "-S", "-E", "/app/containers/healthy.py"]
ENTRYPOINT ["/opt/keplab/bin/python", "-m"]
CMD ["services.cli", "--help"]
