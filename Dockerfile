# `cutaway serve` on a CPU:
#   docker build -t cutaway .
#   docker run --rm -p 8643:8643 -e CUTAWAY_TOKEN=secret -v "$PWD/runs:/runs:ro" cutaway serve /runs/demo --host 0.0.0.0
FROM python:3.12-slim

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 UV_NO_CACHE=1 UV_SYSTEM_PYTHON=1
WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
COPY recipes recipes
COPY lessons lessons
COPY exercises exercises
COPY experiments experiments
RUN pip install uv && uv pip install --torch-backend=cpu -c constraints.txt '.[torch,serve,ct2]'

RUN useradd --create-home --uid 10001 cutaway
USER cutaway
WORKDIR /home/cutaway
EXPOSE 8643
# The server answers /health as soon as it listens, and /ready once its models are loaded.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8643/health', timeout=4)"]
ENTRYPOINT ["cutaway"]
CMD ["--help"]
