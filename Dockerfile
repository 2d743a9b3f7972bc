# Foretell in a container: the page by default, any verb instead.
#
#     docker build --tag foretell .
#     docker run --rm --publish 127.0.0.1:8765:8765 foretell
#     docker run --rm foretell estimate llama-3.1-8b --gpus 16xH100
#
# Packages are those of requirements.lock, checked by their hashes. It runs as a user without rights.

FROM python:3.13-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
COPY requirements.lock ./
RUN python -m venv /opt/foretell \
    && /opt/foretell/bin/pip install --require-hashes --requirement requirements.lock \
    && /opt/foretell/bin/pip install "hatchling>=1.27"
COPY pyproject.toml README.md LICENSE ./
COPY tools/hatch_build.py tools/
COPY src src
RUN /opt/foretell/bin/pip install --no-deps --no-build-isolation . \
    && /opt/foretell/bin/pip uninstall --yes hatchling

# For .devcontainer: the tools of the repository, and git.
FROM python:3.13-slim AS dev
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git chromium fonts-liberation \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 1000 foretell
USER foretell

FROM python:3.13-slim AS run
LABEL org.opencontainers.image.title="Foretell" \
    org.opencontainers.image.description="Predict the time, memory, energy and cost of training and serving transformers" \
    org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --create-home --uid 10001 foretell
COPY --from=build /opt/foretell /opt/foretell
ENV PATH=/opt/foretell/bin:$PATH PYTHONUNBUFFERED=1
USER 10001
WORKDIR /home/foretell
EXPOSE 8765
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 8765), 3).close()"]
ENTRYPOINT ["foretell"]
# Beyond the container's own loopback the page asks for the token that is printed with its address.
CMD ["ui", "--host", "0.0.0.0", "--port", "8765", "--no-browser"]
