"""Routes of a monitor of several tasks: a list, and a page for each."""

from email.message import Message
from functools import partial

from murk.monitoring.tasks import TaskMonitors
from murk.monitoring.web.routes import PAGE, files, json_response, metrics, own_routes, runbook_routes
from murk.monitoring.web.server import Response, Route, text

_TASKS = "/tasks/"


class TaskRoutes:
    """Routes of all tasks: a list at ``/`` and each task's page below ``/tasks/NAME/``; a single task is also at ``/``.

    ``/healthz`` answers 503 while no log can be read, and names those that cannot.
    """

    def __init__(self, tasks: TaskMonitors) -> None:
        self._tasks = tasks
        self._files = files(PAGE)
        self._list = partial(json_response, tasks.body)
        self._common: dict[str, Route] = {
            **runbook_routes(),
            "/metrics": partial(metrics, tasks.registry),
            "/healthz": self._healthz,
            "/api/tasks": self._list,
        }

    def get(self, path: str, /) -> Route | None:
        """Return the route of a path, if there is one."""
        monitors = self._tasks.monitors
        if path in self._common:
            return self._common[path]
        if path.startswith(_TASKS):
            name, slash, rest = path.removeprefix(_TASKS).partition("/")
            path = slash + rest
            return (own_routes(monitors[name]) | self._files).get(path) if name in monitors else None
        if len(monitors) == 1:
            return (own_routes(*monitors.values()) | self._files).get(path)
        page = self._files["/tasks.html"]
        return (self._files | {"/": page, "/index.html": page, "/api/status": self._list}).get(path)

    def _healthz(self, headers: Message) -> Response:
        healthy, lines = self._tasks.health()
        return text(200 if healthy else 503, lines)
