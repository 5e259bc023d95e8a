"""An entry of the public registry of deployments of differential privacy, as far as task and deployment tell.

The form is that of the registry's data (schema of github.com/opendp/deployments-registry-data, 2026). What Murk cannot
know is left as a text that begins with ``TODO``.
"""

from datetime import UTC, datetime
from typing import Any, Final

import yaml

from murk import __version__
from murk.dossier.deployment import span
from murk.dossier.example import caps_of
from murk.dossier.facts import Facts, stated
from murk.privacy import ApproxDP, GaussianDP, Guarantee, PureDP, ZeroConcentratedDP
from murk.privacy.guarantees import number
from murk.task.windows import each_of

_REGRESSIONS: Final = "Machine learning model"
_TODO: Final = "TODO"


def entry_of(facts: Facts, now: datetime | None = None) -> dict[str, Any]:
    """Return a draft of the entry as plain data."""
    task, made = facts.task, (now or datetime.now(UTC)).date().isoformat()
    whole = task.privacy.whole or task.privacy.guarantee
    variant, parameters = _parameters(whole)
    about = task.about
    curator = facts.controller or (about and about.controller) or f"{_TODO}: who publishes the result"
    return {
        "url_slug": f"{task.name}-{made[:4]}",
        "status": "Draft",
        "tier": 3,
        "deployment": {
            "basic": {
                "name": task.name,
                "data_curators": [curator],
                "intended_use": facts.stated_purpose or f"{_TODO}: what the result is for",
                "data_product_type": _REGRESSIONS if task.features else "Summary statistics",
                "data_product_region": f"{_TODO}: which region's people and laws",
                "description": _description(facts),
                "publication_date": made,
            },
            "dp_variant": {
                "variant_name": variant,
                "data_domain": _domain(facts),
                "unprotected_quantities": _unprotected(facts),
            },
            "privacy_loss": {
                "privacy_unit": _unit(facts),
                "privacy_unit_details": _adjacent(facts),
                "privacy_parameters": parameters,
                "privacy_parameters_details": _details(facts, whole),
            },
            "deployment_model": _model(facts),
            "accounting": {
                "post_processing": "Models, intervals and metrics are computed from releases alone.",
                "composition": f"A ledger adds up a {facts.who}'s releases and refuses those beyond the cap: "
                f"{caps_of(task)}.",
            },
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": "Records are coded by public bounds, categories and rules "
                "for missing values, fixed in the task before anybody released. "
                f"{_TODO}: were they chosen without these data?",
                "mechanisms": f"{', '.join(sorted({each.kind for each in facts.mechanisms.values()}))} by murk "
                f"{__version__}: exact noise on integers from the system's randomness, so that floating point "
                f"discloses nothing. Task hash (SHA-256): {task.hash}.",
                "justification": f"{_TODO}: why this budget and these columns",
            },
            "administrative": {
                "sources": (about and about.notice) or f"{_TODO}: a page about the deployment",
                "registry_authors": [f"{_TODO}: who fills this in"],
            },
        },
    }


def yaml_of(entry: dict[str, Any]) -> str:
    """Return an entry as the registry's YAML."""
    return yaml.safe_dump(entry, sort_keys=False, allow_unicode=True, width=100)


def _parameters(guarantee: Guarantee) -> tuple[str, dict[str, float]]:
    if isinstance(guarantee, PureDP):
        return "Pure DP", {"epsilon": guarantee.epsilon}
    if isinstance(guarantee, ApproxDP):
        return "Approximate DP", {"epsilon": guarantee.epsilon, "delta": guarantee.delta}
    if isinstance(guarantee, ZeroConcentratedDP):
        return "Zero-concentrated DP", {"rho": guarantee.rho}
    if isinstance(guarantee, GaussianDP):
        # Gaussian differential privacy, which says more, is no variant of the registry.
        return "Zero-concentrated DP", {"rho": float(number(guarantee.mu**2 / 2))}
    return "Custom", {}


def _details(facts: Facts, whole: Guarantee) -> str:
    task = facts.task
    one_release = f"one release: {stated(task.privacy.guarantee)}"
    words = [f"All releases to this task: {stated(whole)}; {one_release}."]
    # Without a cap the figures are of a single release at the default level.
    levels = "; further levels have guarantees of their own" if task.privacy.further_levels else ""
    if task.privacy.whole is None and task.privacy.renews:
        words = [f"No cap over all windows; {one_release}{levels}."]
    elif task.privacy.whole is None and levels:
        words = [f"One release of each, at their level; {one_release}{levels}."]
    if isinstance(whole, GaussianDP):
        words.append("The guarantee is Gaussian differential privacy (mu), which implies the stated rho.")
    if task.privacy.renews:
        words.append(f"The budget renews {each_of(task.privacy.window)}: {caps_of(task)}.")
    if task.shuffle is not None:
        central = task.shuffle.central(task.privacy.guarantee)
        words.append(f"Towards everybody but the shuffler: {stated(central)}.")
    return " ".join(words)


def _adjacent(facts: Facts) -> str:
    unit = _unit(facts).lower()
    if facts.is_central:
        return f"In adjacent data sets one {unit} is replaced by a blank one (all zeros)."
    return f"In adjacent data sets one {unit} is replaced by any other (replace-one)."


def _unit(facts: Facts) -> str:
    if facts.task.of_organisations:
        block = facts.task.block
        return "Person" if getattr(block, "person", None) else "Record"
    return {"row of the file": "Row of a file", "browser profile": "Browser profile"}.get(facts.who, "Person")


def _description(facts: Facts) -> str:
    task = facts.task
    names = ", ".join(feature.label or feature.name for feature in task.features)
    target = task.target.label or task.target.name
    return (
        f"How {target} depends on {names}, with intervals." if names else f"{target} of a population, with intervals."
    )


def _domain(facts: Facts) -> str:
    columns = ", ".join(facts.task.coding.all_columns)
    return f"Records with {columns} within the task's public bounds; each {_unit(facts).lower()} answers."


def _unprotected(facts: Facts) -> str:
    words = ["the number of releases", "the level and the truncated time of each"]
    if facts.disclosure is not None:
        words.append(facts.disclosure.what().lower())
    return f"{'; '.join(words)}. The task with its bounds is public."


def _archived(facts: Facts) -> str:
    """Return how much longer an archive keeps releases, as the end of a sentence."""
    if facts.task.archive_words:
        return f" on the log. {facts.task.archive_words}"
    return " on the log, and in an archive until somebody deletes it." if facts.archive else "."


def _model(facts: Facts) -> dict[str, Any]:
    task = facts.task
    name = "Central" if task.of_organisations else "Shuffle" if task.shuffle is not None else "Local"
    renews = task.privacy.renews or task.of_organisations
    trusted = {
        "Central": "The organisation that holds the records is trusted with them.",
        "Shuffle": "The shuffler is trusted to keep the order of arrival to itself, for the central guarantee alone.",
        "Local": "Nobody beyond the releasing machine is trusted.",
    }[name]
    holder = "Whoever serves the web page is trusted with everything that its code reads. " if facts.web else ""
    holder += "Whoever holds the file of records is trusted with it. " if facts.from_file else ""
    each = f"A person's budget renews {each_of(task.privacy.window)}." if task.privacy.renews else "One budget for all."
    return {
        "model_name": name,
        "model_name_details": trusted,
        "actors": f"{holder}{trusted} Operators of the log, the learner and readers of results are not trusted.",
        "release_type": "Many releases" if renews else "One release",
        "release_type_details": f"{each} Releases are kept for {span(task.log.retention)}{_archived(facts)}",
        "data_source_type": "Static" if facts.from_file and not renews else "Dynamic",
        "access_type": "Non-interactive",
    }
