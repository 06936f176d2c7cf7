# The image of a job of --launch=kubernetes, with exactly the versions of constraints.txt:
#
#     docker build -t registry.example.org/runner .
#
# A project of your own: FROM that image, and COPY its files to /work.
FROM python:3.11-slim

ENV PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1
COPY pyproject.toml constraints.txt README.md LICENSE /opt/runner/
COPY runner /opt/runner/runner
COPY tasks /opt/runner/tasks
COPY experiments /opt/runner/experiments
RUN pip install /opt/runner -c /opt/runner/constraints.txt

# Volumes should be writable for this user (fsGroup, or the rights of the folder).
RUN useradd --uid 1000 --create-home runner && mkdir /work && chown runner /work
USER 1000
WORKDIR /work
