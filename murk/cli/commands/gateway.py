"""``murk gateway``: let devices read the task and send releases over HTTP."""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack, suppress
from ipaddress import IPv4Network, IPv6Network, ip_network
from logging import INFO
from time import sleep

import click

from murk._internal.atomic_files import warn_if_exposed
from murk.cli.interrupts import between_steps
from murk.cli.logs import logging_options, say
from murk.cli.metrics import MetricsAddress, gateway_metrics, metrics_port
from murk.cli.options import existing_logs, listening, store, task_names, wait_for_task
from murk.cli.output import address_as_json, print_address
from murk.cli.searching import Reports, begin_search
from murk.errors import UserError, reason_of

_ERROR_CODE = "MURK-CLI-002"

_SWITCH = 0.0005
"""Seconds after which one thread interrupts another. With Python's 5 ms, each request would wait that long at every
call of the system while releases are checked."""
_PAUSE = 0.1  # seconds between two checks of the server and of the threads
_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[a-z0-9._-]+|\[[0-9a-f:.]+\]")
_FIELD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # the name of a header (RFC 9110)
_LEAST_TOKEN = 16  # least number of characters of a bearer token


@click.command("gateway")
@existing_logs
@task_names(help="Serve only the task NAME; may be repeated.  [default: all]")
@listening(8080)
@click.option("--tls-cert", metavar="FILE", help="Certificate chain in PEM; needs --tls-key.")
@click.option("--tls-key", metavar="FILE", help="Key of the certificate in PEM.")
@click.option(
    "--origin",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="Origin of pages that may use the gateway, such as https://app.example.org; * for all. May be repeated.",
)
@click.option(
    "--rate",
    type=click.IntRange(0),
    default=3_000,
    show_default=True,
    metavar="N",
    help="Largest number of releases per minute of an address prefix (IPv4 /24, IPv6 /48), which a whole office may "
    "share; 0: no limit, as behind a proxy that has one.",
)
@click.option(
    "--read-rate",
    type=click.IntRange(0),
    metavar="N",
    help="Largest number of other requests per minute of an address prefix, for the task and models; 0: no limit.  "
    "[default: 10 times --rate]",
)
@click.option(
    "--allow-header",
    "allowed_headers",
    multiple=True,
    metavar="NAME",
    help="Header that pages of --origin may also send, such as traceparent. It is not read. May be repeated.",
)
@click.option(
    "--connections",
    type=click.IntRange(1, 60_000),
    default=1_000,
    show_default=True,
    metavar="N",
    help="Largest number of open connections.",
)
@click.option(
    "--connections-per-address",
    "each",
    type=click.IntRange(0, 60_000),
    default=200,
    show_default=True,
    metavar="N",
    help="Largest number of open connections of one address; 0: no limit, as behind a proxy that has one.",
)
@click.option("--token-file", metavar="FILE", help="File with a bearer token that requests need.")
@click.option(
    "--ohttp-key",
    "ohttp_keys",
    multiple=True,
    type=click.Path(),
    metavar="FILE",
    help="Answer requests through relays (Oblivious HTTP) with the key in this file, which is made if it is "
    "missing. May be repeated: the first is announced, the others are still accepted.",
)
@click.option(
    "--relay",
    "relays",
    multiple=True,
    metavar="ADDRESS",
    help="Address or network of a relay, which --rate does not limit: it must limit its own clients. May be repeated.",
)
@click.option(
    "--shuffle",
    "shuffle_url",
    metavar="URL",
    help="Also shuffle: forward the releases on --log in crowds to this log of releases.",
)
@store(
    help="With --shuffle: file of the releases that wait for their crowd.  [default: FILE.store, or NAME.store]",
)
@wait_for_task
@metrics_port("Serve /metrics and /healthz on port N.")
@logging_options(progress=False)
@address_as_json
def command(
    log_urls: tuple[str, ...],
    names: tuple[str, ...],
    port: int,
    host: str,
    tls_cert: str | None,
    tls_key: str | None,
    origins: tuple[str, ...],
    rate: int,
    read_rate: int | None,
    allowed_headers: tuple[str, ...],
    connections: int,
    each: int,
    token_file: str | None,
    ohttp_keys: tuple[str, ...],
    relays: tuple[str, ...],
    shuffle_url: str | None,
    store_path: str | None,
    wait: bool,
    metrics: MetricsAddress,
    as_json: bool,
) -> None:
    """Let devices read tasks and their newest models, and send releases, over HTTP until stopped.

    A release is answered with 202 once it is durable on the log. The gateway needs no secret: the rules of admission
    are those of the log's learners, and no address is logged. Without --task all tasks of the logs are served, also
    those that appear later; of a cluster's logs those of shuffled tasks are left out.

    With --shuffle it is the shuffler of a small deployment, too: --log is then the input log, which nobody else may
    read.
    """
    from murk.cli.shuffling import shuffling_thread
    from murk.gateway.app import Settings
    from murk.gateway.oblivious import ObliviousKeys
    from murk.gateway.server import GatewayServer
    from murk.gateway.tasks import GatewayTasks

    if tls_key is not None:
        warn_if_exposed(tls_key, "the key of the certificate")
    sys.setswitchinterval(_SWITCH)
    if (tls_cert is None) != (tls_key is None):
        raise UserError("--tls-cert and --tls-key belong together: give both or neither")
    for origin in origins:
        _check_origin(origin)
    for header in allowed_headers:
        if not _FIELD.fullmatch(header):
            raise UserError(f"--allow-header {header}: write the name of one header, such as traceparent")
    if allowed_headers and not origins:
        raise UserError("--allow-header is for pages: give their --origin, too")
    token = None if token_file is None else _token(token_file)
    free = tuple(_network(relay) for relay in relays)
    if free and not ohttp_keys:
        raise UserError("--relay: requests through a relay need a key: give --ohttp-key FILE, too")
    if store_path is not None and shuffle_url is None:
        raise UserError("--store is the shuffler's: give --shuffle URL, too")
    if shuffle_url is not None and (len(log_urls) > 1 or names):
        raise UserError("--shuffle: give one --log, the input log, and no --task")
    settings = Settings(
        origins=origins,
        token=token,
        rate=rate,
        reads=read_rate,
        allowed_headers=allowed_headers,
        keys=ObliviousKeys.load(ohttp_keys) if ohttp_keys else None,
        relays=free,
        each=each,
    )
    with ExitStack() as stack:
        gateway = GatewayServer(
            host, port, settings=settings, connections=connections, certificate=tls_cert, key=tls_key
        )
        stack.callback(gateway.close)
        tasks = GatewayTasks(gateway, log_urls, names)
        stack.callback(tasks.close)
        begin_search(tasks, log_urls, wait=wait)
        shuffling, checks = None, [tasks.step, Reports(tasks, log_urls).report]
        if shuffle_url is not None:
            beside = shuffling_thread(log_urls[0], shuffle_url, store_path, wait=wait)
            shuffling, check = stack.enter_context(beside)
            checks.append(check)
        checks.append(stack.enter_context(gateway_metrics(metrics, tasks, gateway.registry, shuffling)))
        with between_steps(gateway.reload) as asked:
            gateway.start()
            label = ", ".join(tasks.running)
            where = label if len(tasks.running) == 1 else "NAME"
            print_address(label, gateway, f"devices at {gateway.url}/v1/tasks/{where}", as_json)
            with suppress(KeyboardInterrupt):
                while not asked():
                    for check in checks:
                        check()
                    sleep(_PAUSE)
            tasks.close()
        say("stopped", INFO)


def _check_origin(origin: str) -> None:
    """Refuse an origin that no browser sends: it could never match."""
    if origin == "*":
        return
    usual = _serialized(origin)
    if usual is None:
        raise UserError(f"--origin {origin}: write an origin as https://app.example.org, without a path, or *")
    if usual != origin:
        raise UserError(f"--origin {origin}: browsers write this origin as {usual}, so write it like that")


def _serialized(origin: str) -> str | None:
    """Return an origin as browsers serialize it, or None if the text is no origin."""
    from ipaddress import ip_address
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(origin)
        host, port = parts.hostname or "", parts.port
        named = host.encode("idna").decode("ascii").lower() if ":" not in host else f"[{ip_address(host).compressed}]"
    except ValueError:
        return None
    more = (parts.path, parts.query, parts.fragment)
    if parts.scheme not in _PORTS or any(more) or "@" in parts.netloc or not named or not _HOST.fullmatch(named):
        return None
    return f"{parts.scheme}://{named}" + ("" if port in (None, _PORTS[parts.scheme]) else f":{port}")


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text)
    except ValueError:
        raise UserError(f"--relay {text}: write an address, or a network as 192.0.2.0/24 or 2001:db8::/32") from None


def _token(path: str) -> str:
    warn_if_exposed(path, "the token of devices")
    try:
        with open(path, encoding="ascii") as file:
            token = file.read(4_096).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = reason_of(error, "not ASCII")
        raise UserError(f"--token-file {path}: cannot be read ({reason})") from None
    if len(token) < _LEAST_TOKEN or not token.isprintable() or " " in token:
        raise UserError(f"--token-file {path}: a token is one word of at least {_LEAST_TOKEN} characters")
    return token
