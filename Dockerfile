# The image of a job of --launch=kubernetes, with exactly the versions of constraints.txt:
#
#     docker build -t registry.example.org/runner .
#     docker build -t registry.example.org/runner --build-arg EXTRAS=s3,wandb .
#
# A project of your own: FROM that image, and COPY its files to /work.
FROM python:3.11-slim

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1
COPY pyproject.toml constraints.txt README.md LICENSE /opt/runner/
COPY runner /opt/runner/runner
COPY tasks /opt/runner/tasks
COPY experiments /opt/runner/experiments
ARG EXTRAS=s3,gcs
RUN pip install "/opt/runner[$EXTRAS]" -c /opt/runner/constraints.txt

# The manifests of --launch=kubernetes let the group 1000 write in volumes.
RUN useradd --uid 1000 --create-home runner && mkdir /work && chown runner /work
USER 1000
WORKDIR /work
