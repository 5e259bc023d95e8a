# The image of all of Murk's parts: learners, monitor, `murk topics`, and the simulated population of compose.yaml.
FROM python:3.11-slim-bookworm AS wheel
WORKDIR /source
COPY . .
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim-bookworm AS installed
COPY --from=wheel /wheels /wheels
# Written by `make lock`; without it the newest versions that fit are installed.
COPY deploy/requirements.tx[t] /wheels/
RUN python -m venv /opt/murk \
    && if [ -f /wheels/requirements.txt ]; then \
       /opt/murk/bin/python -m pip install --no-cache-dir --require-hashes -r /wheels/requirements.txt; fi \
    && /opt/murk/bin/python -m pip install --no-cache-dir "$(ls /wheels/*.whl)[frames,gateway,kafka,monitor,ohttp]"
# Compiled once, here, by a small run. Numba's index tells from the sources' times whether a kernel is current, and
# layers keep times in whole seconds only. (What Python compiled itself goes by the times as well.)
ENV MURK_KERNELS=/opt/murk/kernels
RUN find /opt/murk/lib -name '*.py' -exec touch --date=@946684800 '{}' + \
    && /opt/murk/bin/python -m compileall -q /opt/murk/lib
WORKDIR /tmp/small
RUN python=/opt/murk/bin/python \
    && gunzip --stdout "$($python -c 'from murk.demo import DATA; print(DATA)')" > all.csv \
    && head --lines=8001 all.csv > people.csv \
    && NUMBA_CACHE_DIR="$MURK_KERNELS" /opt/murk/bin/murk run \
       "$($python -c 'from murk.demo import TASK; print(TASK)')" --source people.csv --level lot --seed 1

FROM python:3.11-slim-bookworm
RUN groupadd --gid 10001 murk \
    && useradd --uid 10001 --gid murk --no-create-home --home-dir /var/lib/murk murk \
    && install --directory --owner=murk --group=murk /var/lib/murk
COPY --from=installed /opt/murk /opt/murk
COPY --chmod=755 deploy/start.sh /usr/local/bin/start-murk
# The demonstration's data, under a name that does not change with Python's version.
RUN mkdir /usr/share/murk \
    && ln -s "$(/opt/murk/bin/python -c 'from murk.demo import DATA; print(DATA)')" /usr/share/murk/mothers-1980.csv.gz
ENV PATH=/opt/murk/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    MURK_KERNELS=/opt/murk/kernels \
    NUMBA_CACHE_DIR=/tmp/kernels
# By number, so that Kubernetes can see that it is not root.
USER 10001:10001
# Ledgers, and logs in files, live here: mount a volume that lasts.
WORKDIR /var/lib/murk
ENTRYPOINT ["start-murk"]
CMD ["--help"]
