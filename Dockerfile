# Two stages: the first builds the wheel and fills a virtual environment, the second runs it and holds nothing else.
FROM python:3.13-slim AS build
WORKDIR /src
COPY requirements.lock pyproject.toml README.md LICENSE ./
RUN python -m venv /opt/okl && /opt/okl/bin/pip install --no-cache-dir --require-hashes -r requirements.lock
COPY okl_core okl_core
COPY service service
RUN /opt/okl/bin/pip install --no-cache-dir --no-deps .

FROM python:3.13-slim
RUN useradd --system --create-home --home-dir /var/lib/okl okl
COPY --from=build /opt/okl /opt/okl
# One BLAS thread and one choice of kernels: workers share cores, and replays give the same bytes on every machine.
ENV PATH=/opt/okl/bin:$PATH \
    OPENBLAS_NUM_THREADS=1 \
    OPENBLAS_CORETYPE=Haswell \
    OKL_HOST=0.0.0.0 \
    OKL_PORT=8000 \
    OKL_STORE=sqlite:////var/lib/okl/okl.sqlite3 \
    OKL_LOG_FORMAT=json
USER okl
WORKDIR /var/lib/okl
VOLUME /var/lib/okl
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
# One worker process per container: scale by containers.
CMD ["okl", "serve"]
