"""Grafana: four dashboards and what provisions them, as plain JSON made from the description of the metrics."""

from tools.grafana.model import model
from tools.grafana.panels import DATASOURCE, Json
from tools.grafana.pipeline import pipeline
from tools.grafana.privacy import privacy
from tools.grafana.tasks import tasks

__all__ = ["DASHBOARDS", "DASHBOARD_FOLDER", "dashboard_provider", "data_source"]

DASHBOARDS = {"tasks": tasks, "model": model, "pipeline": pipeline, "privacy": privacy}
"""Every dashboard by the name of its file."""

DASHBOARD_FOLDER = "/etc/grafana/dashboards"
"""Where the dashboards' files are mounted in Grafana's container."""


def data_source(url: str = "http://prometheus:9090") -> Json:
    """Provision the data source under the fixed uid that every panel names.

    Examples
    --------
    >>> data_source()["datasources"][0]["uid"]
    'murk-prometheus'
    """
    return {
        "apiVersion": 1,
        "datasources": [
            {
                "name": "Murk",
                "uid": DATASOURCE["uid"],
                "type": DATASOURCE["type"],
                "access": "proxy",
                "url": url,
                "isDefault": True,
                "editable": False,
                # The scrape interval: without it Grafana takes 15 s, and rates over shorter ones come out empty.
                "jsonData": {"httpMethod": "POST", "timeInterval": "5s", "prometheusType": "Prometheus"},
            }
        ],
    }


def dashboard_provider() -> Json:
    """Provision the dashboards from their folder; they are changed in code, not in the browser."""
    return {
        "apiVersion": 1,
        "providers": [
            {
                "name": "murk",
                "folder": "Murk",
                "type": "file",
                "disableDeletion": True,
                "allowUiUpdates": False,
                "updateIntervalSeconds": 30,
                "options": {"path": DASHBOARD_FOLDER, "foldersFromFilesStructure": False},
            }
        ],
    }
