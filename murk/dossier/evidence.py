"""Evidence of a dossier: tests that fail if a sentence is not true of the code."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Evidence:
    """A tested property, and its test (file, two colons, name)."""

    what: str
    tests: tuple[str, ...]


def _evidence(what: str, *tests: str) -> Evidence:
    return Evidence(what, tests)


EVIDENCE: dict[str, Evidence] = {
    "release": _evidence(
        "a release holds the fields that are listed, and neither a name nor a value of the record",
        "tests/producers/test_producer.py::test_holds_no_name_and_no_value",
        "tests/producers/test_producer.py::test_stands_on_the_log_and_fits_the_task",
        "tests/dossier/test_example.py::test_the_bytes_are_those_of_a_device"),
    "noise": _evidence(
        "noise has exactly the stated distribution, on integers, from the system's randomness; and floats would leak",
        "tests/privacy/noise/test_distribution.py::test_secure_noise_as_it_is_released",
        "tests/privacy/noise/test_exact.py::test_acceptance_is_exactly_exponential",
        "tests/privacy/noise/test_floats.py::test_lattice_noise_passes"),
    "bound": _evidence(
        "no record, no model and no floating-point error makes a vector longer than the noise allows for",
        "tests/privacy/mechanisms/test_lattice.py::test_any_vector_ends_within_the_bound",
        "tests/learners/test_objectives.py::test_no_record_and_no_iterate_exceeds_the_bound"),
    "calibration": _evidence(
        "no level's noise is less than its guarantee needs, by exact divergences and by other libraries",
        "tests/privacy/mechanisms/test_calibrate.py::test_never_beyond_the_guarantee_nor_its_cap",
        "tests/privacy/mechanisms/test_common.py::test_gaussian_the_exact_divergence_is_bounded_for_any_two_vectors",
        "tests/privacy/mechanisms/test_common.py::test_laplace_the_exact_likelihood_ratio_is_bounded_for_any_two_vectors",
        "tests/privacy/mechanisms/test_calibrate.py::test_gdp_calibration_agrees_with_dp_accounting"),
    "attack": _evidence(
        "nobody tells two records apart more often than is stated; figures are rounded up",
        "tests/privacy/test_guarantees.py::test_nobody_tells_two_records_apart_better_than_is_said",
        "tests/privacy/test_guarantees.py::test_figures_are_rounded_up"),
    "composition": _evidence(
        "several releases together have the stated guarantee, which is never stronger than that of one of them",
        "tests/privacy/test_accounting.py::test_more_releases_never_promise_more",
        "tests/privacy/test_accounting.py::test_many_gaussian_releases_agree_with_dp_accounting"),
    "shuffling": _evidence(
        "a crowd's guarantee is never below the exact one; crowds are whole, of one level and version, in a uniformly "
        "random order and released once; what is refused does not count",
        "tests/privacy/test_shuffling.py::test_never_below_high_precision_and_within_a_hundredth",
        "tests/privacy/test_shuffling.py::test_no_small_crowd_discloses_more",
        "tests/shuffler/test_order.py::test_positions_do_not_depend_on_arrival",
        "tests/shuffler/test_shuffler.py::test_levels_and_versions_are_crowds_of_their_own",
        "tests/shuffler/test_shuffler.py::test_duplicates_and_hostile_messages_do_not_count_to_a_crowd",
        "tests/shuffler/test_kills.py::test_a_power_cut_between_any_two_transactions_changes_nothing"),
    "caps": _evidence(
        "a device refuses every release beyond a cap, exact to a unit of privacy loss, whatever a task asks for",
        "tests/producers/ledger/test_ledger.py::test_are_exact_to_the_unit",
        "tests/producers/ledger/test_ledger.py::test_hold_over_all_tasks",
        "tests/producers/test_policy.py::test_a_task_may_not_ask_for_more_than_the_policy_allows"),
    "crash": _evidence(
        "a process that is killed at any moment debits nobody twice and loses no debit",
        "tests/producers/test_crashes.py::test_killed_at_random_moments",
        "tests/producers/ledger/test_ledger.py::test_nothing_is_debited_without_its_release"),
    "once": _evidence(
        "a record is randomized once, and a retry sends the same bytes",
        "tests/producers/ledger/test_ledger.py::test_are_released_once",
        "tests/producers/test_producer.py::test_what_was_queued_goes_first_and_unchanged"),
    "order": _evidence(
        "within a block the order of a gateway's releases does not show whose they are; blocks follow the file",
        "tests/producers/populations/test_order.py::test_order_within_a_block_says_nothing",
        "tests/producers/populations/test_order.py::test_every_order_is_as_likely",
        "tests/producers/populations/test_order.py::test_blocks_follow_each_other",
        "tests/producers/populations/test_order.py::test_order_tells_whose_a_release_is_where_blocks_are_of_one"),
    "values": _evidence(
        "whether, when and where something is sent depends on no value of a record",
        "tests/producers/test_producer.py::test_never_decide_whether_something_is_sent",
        "tests/producers/test_producer.py::test_a_refused_record_is_not_looked_at"),
    "hostile": _evidence(
        "a forged model is refused before the record is read",
        "tests/producers/test_producer.py::test_are_refused_before_the_record_is_looked_at"),
    "silence": _evidence(
        "no error, log line, metric, state or page has a value of a record or a name in it",
        "tests/learners/test_hygiene.py::test_no_value_stops_learn_many_or_is_quoted",
        "tests/producers/test_producer.py::test_receipts_name_nobody",
        "tests/producers/populations/test_people.py::test_its_note_says_nothing_of_the_people",
        "tests/monitoring/web/test_server.py::test_a_route_that_fails_says_nothing_of_why"),
    "groups": _evidence(
        "figures that depend on values leave no device; sums over a ledger's accounts are about 20 people or more",
        "tests/producers/test_producer.py::test_are_counted_on_the_device_and_told_to_nobody",
        "tests/producers/ledger/test_aggregates.py::test_the_difference_of_any_two_sums_is_about_a_group_whoever_reports"),
    "withdrawal": _evidence(
        "a withdrawal deletes waiting releases and refuses further ones, and refunds nothing",
        "tests/producers/ledger/test_ledger.py::test_stops_and_purges_and_refunds_nothing",
        "tests/producers/test_producer.py::test_withdrawal_empties_the_outbox"),
    "names": _evidence(
        "a ledger contains no name and no digest of records; without its key nobody can be found in it, or get a "
        "second budget",
        "tests/producers/ledger/test_names.py::test_no_digest_of_a_file_is_in_a_new_ledger",
        "tests/producers/ledger/test_names.py::test_nobody_is_named_in_a_new_ledger",
        "tests/producers/ledger/test_names.py::test_without_its_key_a_ledger_finds_nobody_and_releases_nothing",
        "tests/producers/ledger/test_names.py::test_killed_while_migrating_nobody_gets_a_second_budget"),
    "statement": _evidence(
        "a person's own account fits on a screen and does not say who they are",
        "tests/cli/test_statement.py::test_one_screen_says_what_was_sent_what_it_can_say_and_the_way_out",
        "tests/cli/test_statement.py::test_nothing_on_it_says_whose_it_is"),
    "public": _evidence(
        "nobody's features become public unless the task says so and somebody agrees",
        "tests/cli/test_consent.py::test_where_nobody_can_be_asked_nothing_is_published",
        "tests/producers/populations/test_people.py::test_a_policy_must_allow_a_public_sample"),
    "days": _evidence(
        "times on a release are truncated to the task's granularity",
        "tests/producers/test_producer.py::test_days_are_noted_and_no_hours"),
    "expiry": _evidence(
        "a device deletes releases that it could not send before they expired",
        "tests/producers/test_producer.py::test_expired_releases_are_let_go_of"),
    "topics": _evidence(
        "topics without the settings that a task needs are reported",
        "tests/services/test_topics.py::test_settings_that_do_not_fit_are_named_and_mended"),
    "old-copy": _evidence(
        "a file that is damaged, emptied, not a ledger or of another version is refused as a ledger",
        "tests/producers/ledger/test_file.py::test_what_is_wrong_with_a_damaged_ledger_is_said"),
    "audit": _evidence(
        "the audit refutes a mechanism with half of its noise, and does not refute an honest one",
        "tests/audit/test_audit.py::test_honest_releases_stand_and_half_the_noise_does_not",
        "tests/audit/test_bounds.py::test_bounds_exceed_the_truth_no_oftener_than_allowed"),
    "window": _evidence(
        "only the noisy summary of an organisation's window leaves the process",
        "tests/producers/sketches/test_producer.py::test_the_release_holds_no_name",
        "tests/producers/sketches/test_producer.py::test_killed_while_records_stream_in"),
}  # fmt: skip
