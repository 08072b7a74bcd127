# Two stages: the first builds the wheel, and a virtual environment with it; the second contains only that environment.
FROM python:3.13-slim AS build
WORKDIR /src
COPY requirements.lock requirements-build.lock pyproject.toml README.md LICENSE ./
RUN python -m venv /opt/okl && /opt/okl/bin/pip install --no-cache-dir --require-hashes -r requirements.lock \
    && python -m venv /opt/build && /opt/build/bin/pip install --no-cache-dir --require-hashes -r requirements-build.lock
COPY okl okl
COPY okl_core okl_core
COPY service service
# Remove pip and the tests of numpy and scipy, a fifth of the size.
RUN /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /opt/wheel . \
    && /opt/okl/bin/pip install --no-cache-dir --no-deps /opt/wheel/*.whl \
    && find /opt/okl/lib/*/site-packages/numpy /opt/okl/lib/*/site-packages/scipy -type d -name tests -prune -exec rm -rf {} + \
    && /opt/okl/bin/pip uninstall --yes pip

FROM python:3.13-slim
# A number, since Kubernetes cannot tell from a name that a user is not root.
RUN useradd --uid 10001 --create-home --home-dir /var/lib/okl --shell /usr/sbin/nologin okl
COPY --from=build /opt/okl /opt/okl
# `okl` selects the BLAS kernels (OKL_BLAS_KERNELS) and one thread; the thread is set here for other programs.
ENV PATH=/opt/okl/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    OPENBLAS_NUM_THREADS=1 \
    OKL_HOST=0.0.0.0 \
    OKL_PORT=8000 \
    OKL_LOG_FORMAT=json
USER 10001:10001
# By default the sessions are in data/okl.sqlite3 here.
WORKDIR /var/lib/okl
VOLUME /var/lib/okl
EXPOSE 8000
# Liveness, not readiness: an unavailable store is no reason to restart workers. `okl serve` waits for it at the start.
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, ssl, urllib.request as u; \
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT); tls.check_hostname = False; tls.verify_mode = ssl.CERT_NONE; \
        scheme = 'https' if os.environ.get('OKL_TLS_CERT') else 'http'; \
        u.urlopen(f'{scheme}://127.0.0.1:{os.environ[\"OKL_PORT\"]}/healthz', timeout=2, context=tls)"]
# On SIGTERM requests get OKL_SHUTDOWN_GRACE_S (10 s) to finish: use `docker stop --time 15`, since its default is 10 s too.
STOPSIGNAL SIGTERM
# One worker process per container: scale by containers.
CMD ["okl", "serve"]
