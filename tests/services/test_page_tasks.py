"""The list of tasks and the way to each page and back, in a browser."""

from selenium.webdriver.common.by import By

from murk.monitoring.tasks import TaskMonitors
from murk.monitoring.web.server import Server
from murk.monitoring.web.task_routes import TaskRoutes
from tests.monitoring.runs import PEOPLE, copied
from tests.monitoring.runs import url as url_of
from tests.monitoring.test_tasks import EXAMPLES, again, announced, make
from tests.services.fixtures import *  # noqa: F403
from tests.services.services import eventually


def test_from_the_list_to_a_task_and_back(chromium, tmp_path):
    copied(tmp_path)
    tasks = TaskMonitors([url_of(tmp_path), announced(tmp_path / "examples.db", EXAMPLES)], make)
    tasks.search()
    tasks.step()

    def text(selector):
        return chromium.find_element(By.CSS_SELECTOR, selector).text

    with Server(TaskRoutes(tasks)) as server:
        chromium.get(f"{server.url}/")
        eventually(lambda: text("#status-text") == "Live")
        rows = [row.text for row in chromium.find_elements(By.CSS_SELECTOR, "#tasks tr")]
        assert [row.split()[0] for row in rows] == ["examples", "third-child"]
        assert f"{PEOPLE:,}" in rows[1]
        chromium.find_element(By.LINK_TEXT, "third-child").click()
        eventually(lambda: text("h1") == "third-child")
        eventually(lambda: text("#releases") == f"{PEOPLE:,}")
        assert chromium.current_url == f"{server.url}/tasks/third-child/"
        # Where a guarantee is stated, so is what it is not about.
        assert "spends a budget in" in text("#several")
        chromium.find_element(By.LINK_TEXT, "all tasks").click()
        eventually(lambda: text("h1") == "Tasks")
        for path in tmp_path.glob("examples.db*"):
            path.unlink()
        again(tasks)
        eventually(lambda: text("#status-text") == "Some logs cannot be read")
        eventually(lambda: "deleted" in text("#tasks tr:first-child"))
        assert "can be read" in text("#tasks tr:last-child")
        assert [entry["message"] for entry in chromium.get_log("browser")] == []
    tasks.close()


def test_a_page_of_one_task_becomes_the_list_when_another_appears(chromium, tmp_path):
    copied(tmp_path)
    tasks = TaskMonitors([url_of(tmp_path), f"sqlite:///{tmp_path}/examples.db"], make)
    tasks.search()
    tasks.step()

    def heading():
        # Not by an element: the page is loaded anew meanwhile.
        return chromium.execute_script("return document.querySelector('h1')?.textContent")

    with Server(TaskRoutes(tasks)) as server:
        chromium.get(f"{server.url}/")
        eventually(lambda: heading() == "third-child")
        assert not chromium.find_element(By.ID, "several").is_displayed()
        announced(tmp_path / "examples.db", EXAMPLES)
        tasks.search()
        eventually(lambda: heading() == "Tasks")
    tasks.close()
