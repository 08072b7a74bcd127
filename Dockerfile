# Two stages: the first builds the wheel and fills a virtual environment, the second runs it and holds nothing else.
FROM python:3.13-slim AS build
WORKDIR /src
COPY requirements.lock pyproject.toml README.md LICENSE ./
RUN python -m venv /opt/okl && /opt/okl/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY okl okl
COPY okl_core okl_core
COPY service service
# A fifth of it all is the tests of numpy and scipy, and pip, which nobody needs any more.
RUN /opt/okl/bin/pip install --no-cache-dir --no-deps . \
    && find /opt/okl/lib/*/site-packages/numpy /opt/okl/lib/*/site-packages/scipy -type d -name tests -prune -exec rm -rf {} + \
    && /opt/okl/bin/pip uninstall --yes pip

FROM python:3.13-slim
# Kubernetes tells by a number alone that somebody is not root.
RUN useradd --uid 10001 --create-home --home-dir /var/lib/okl --shell /usr/sbin/nologin okl
COPY --from=build /opt/okl /opt/okl
# `okl` chooses the kernels of the BLAS (OKL_BLAS_KERNELS) and one thread; the thread is set here for whatever else runs.
ENV PATH=/opt/okl/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    OPENBLAS_NUM_THREADS=1 \
    OKL_HOST=0.0.0.0 \
    OKL_PORT=8000 \
    OKL_LOG_FORMAT=json
USER 10001:10001
# Where nothing else is said the sessions are in data/okl.sqlite3 here.
WORKDIR /var/lib/okl
VOLUME /var/lib/okl
EXPOSE 8000
# Alive, not ready: a store that is away is no reason to restart the workers. `okl serve` waits for it at the start.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as u; u.urlopen(f'http://127.0.0.1:{os.environ[\"OKL_PORT\"]}/healthz', timeout=2)"]
# On SIGTERM requests get OKL_SHUTDOWN_GRACE_S (10 s) to be answered: `docker stop --time 15`, since its own 10 s are no more.
STOPSIGNAL SIGTERM
# One worker process per container: scale by containers.
CMD ["okl", "serve"]
