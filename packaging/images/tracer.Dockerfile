# The tracer, for hosts that run containers alone (packaging/kubernetes/tracer.yaml tells
# namespaces and capabilities that it needs). `make images` lays the built program beside this
# file's copy and builds it.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
COPY --chown=0:0 tracer-svc /usr/bin/
# Root, since capabilities are given to no one else in a container; three of them are enough.
USER 0:0
ENTRYPOINT ["/usr/bin/tracer-svc"]
