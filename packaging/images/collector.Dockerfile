# The collector: a program, its C library, nothing that it could become. `make images` lays
# the built program beside this file's copy and builds it.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
# `rdmesh` asks for its health, and is at hand for `docker exec`.
COPY --chown=0:0 collector-svc rdmesh /usr/bin/
# Nobody's: owns no file of the image.
USER 65532:65532
EXPOSE 7400
# Answers once the schema is there, and while the database does.
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s --retries=6 \
    CMD ["/usr/bin/rdmesh", "--collector", "127.0.0.1:7400", "fleet"]
ENTRYPOINT ["/usr/bin/collector-svc"]
