# The exporter in a container: no shell is needed, no user has a name, nothing is written.
#
#   docker build -t pg-locks-exporter .
#   docker run --read-only -p 10187:10187 -e DATA_SOURCE_NAME=postgresql://locks@db-1/postgres \
#     pg-locks-exporter

FROM rust:1.89-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --bin locks

FROM debian:bookworm-slim
# Certificates for sslrootcert=system.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /src/target/release/locks /usr/bin/locks
COPY --from=build /src/LICENSE-APACHE /src/LICENSE-MIT /usr/share/doc/pg-locks-exporter/
COPY --from=build /src/alerts /usr/share/pg-locks-exporter/alerts
COPY --from=build /src/dashboards /usr/share/pg-locks-exporter/dashboards
# Within a container loopback is nobody's.
ENV LOCKS_WEB_LISTEN_ADDRESS=:10187
EXPOSE 10187
USER 65534:65534
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/locks"]
CMD ["serve"]
