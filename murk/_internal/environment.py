"""Distinguish Murk's settings from variables that Kubernetes or Docker sets for services called murk-...

For a service ``murk-monitor`` Kubernetes sets ``MURK_MONITOR_SERVICE_HOST``, ``MURK_MONITOR_PORT=tcp://...`` and
others; a Docker link sets ``MURK_MONITOR_NAME`` and ``MURK_MONITOR_ENV_...``.
"""

import re
from collections.abc import Mapping

_SERVICE = re.compile(
    r"[A-Z0-9_]+?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_PORT = re.compile(r"[A-Z0-9_]+_PORT")
_ADDRESS = re.compile(r"(tcp|udp|sctp)://.*", re.DOTALL)


def is_of_service(variable: str, environment: Mapping[str, str]) -> bool:
    """Return whether a variable describes a service rather than a setting.

    >>> environment = {"MURK_DB_PORT": "tcp://10.0.0.1:9", "MURK_DB_NAME": "/page/db", "MURK_MONITOR_PORT": "9464"}
    >>> [is_of_service(name, environment) for name in environment]
    [True, True, False]
    """
    if _SERVICE.fullmatch(variable):
        return True
    if _PORT.fullmatch(variable):
        return bool(_ADDRESS.fullmatch(environment[variable]))
    # A service's own name may contain NAME or ENV, as in murk-env-one.
    return any(
        _ADDRESS.fullmatch(environment.get(f"{variable[: match.start()]}_PORT", ""))
        for match in re.finditer(r"_(?=NAME$|ENV_)", variable)
    )
