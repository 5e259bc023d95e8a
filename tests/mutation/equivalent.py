"""Mistakes that change nothing that can be seen, by file and changed lines, and why."""

EQUIVALENT: dict[tuple[str, str], str] = {
    (
        "murk/task/errors.py",
        (
            "-    close = get_close_matches(word.lower(), lowered, n=1, cutoff=0.5)\n"
            "+    close = get_close_matches(word.lower(), lowered, n=2, cutoff=0.5)"
        ),
    ): "the best match comes first, and only that is used",
    (
        "murk/_internal/sqlite.py",
        (
            "-                sizes = [len(row[-1]) if isinstance(row[-1], _SIZED) else 1 for row in batch]\n"
            "+                sizes = [len(row[-1]) if isinstance(row[-1], _SIZED) else 2 for row in batch]"
        ),
    ): "a cell that is neither is refused, however many rows were read",
    (
        "murk/populations/public_sample.py",
        "-            return False\n+            return None",
    ): "whoever asks takes both for no",
    (
        "murk/populations/records/files.py",
        "-CHUNK = 2**20\n+CHUNK = 3**20",
    ): "how much is read at once",
    (
        "murk/producers/ledger/spending.py",
        (
            "-            chunk += chunk[-1:] * ((1 << (len(chunk) - 1).bit_length()) - len(chunk))\n"
            "+            chunk += chunk[-1:] * ((2 << (len(chunk) - 1).bit_length()) - len(chunk))"
        ),
    ): "a name may be repeated as often as one likes",
    (
        "murk/stream/wire/duplicates.py",
        "-        self._block = 0\n+        self._block = 1",
    ): "before the first message both blocks are empty",
    (
        "murk/privacy/central/sketch_renyi.py",
        "-        low, high = high, 4 * high\n+        low, high = high, 5 * high",
    ): "whatever brackets the root, the search ends at it",
    (
        "murk/privacy/rounding.py",
        "-        if wanted <= 0:\n+        if wanted < 0:",
    ): "at zero the search begins at its root",
    (
        "murk/privacy/central/sketch_tight.py",
        (
            "-    share = np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))\n"
            "+    share = np.where(low >= 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))"
        ),
    ): "at zero both are the same",
    (
        "murk/privacy/mechanisms/gaussian.py",
        (
            "-        return gdp_delta_bound(mu, Fraction(epsilon_units, UNITS)) <= decimal("
            "Fraction(delta_units, DELTA_UNITS))\n"
            "+        return gdp_delta_bound(mu, Fraction(epsilon_units, UNITS)) < decimal("
            "Fraction(delta_units, DELTA_UNITS))"
        ),
    ): "a bound with 60 digits is no round number",
    (
        "murk/privacy/central/kernels.py",
        "-            used = 0\n+            used = 1",
    ): "one fresh word serves as well as another",
    (
        "murk/privacy/noise/sources.py",
        (
            "-            trials = _trials(min(len(out) - done, block)) if status == WORDS else 0\n"
            "+            trials = _trials(min(len(out) + done, block)) if status == WORDS else 0"
        ),
    ): "how many words are fetched at once",
    ("murk/privacy/rounding.py", "-    if x < 5:\n+    if x <= 5:"): "either way is right there",
    (
        "murk/privacy/rounding.py",
        "-    if x < 5:\n+    if x < 6:",
    ): "both are the value to more digits than are asked for",
    ("murk/privacy/rounding.py", "-        for _ in range(8):\n+        for _ in range(9):"): "how often it is looked",
    (
        "murk/privacy/rounding.py",
        (
            "-        if abs(value - before / under) < value * _CLOSE:\n"
            "+        if abs(value - before / under) <= value * _CLOSE:"
        ),
    ): "they are never just as far apart",
    (
        "murk/privacy/central/sketch_tight.py",
        (
            "-    below, above = int(low / _GRID), int(1.25 * low / _GRID) or 2**13\n"
            "+    below, above = int(low / _GRID), int(1.25 * low / _GRID) or 3**13"
        ),
    ): "whatever brackets the root, the search ends at it",
    (
        "murk/stream/worker/pool.py",
        (
            "-LOG_INTERVAL = 60.0  # seconds between two log lines about progress\n"
            "+LOG_INTERVAL = 120.0  # seconds between two log lines about progress"
        ),
    ): "how often something is logged",
    (
        "murk/privacy/central/sketch_tight.py",
        "-_CELL, _COARSE = 2.0**-6, 2.0**-3\n+_CELL, _COARSE = 2.0**-6, 2.0**(3)",
    ): "where the search for an order begins",
    (
        "murk/producers/organisation.py",
        (
            "-        index = index_of(self.organisation, key, self._source) if self._noise.simulated else 0\n"
            "+        index = index_of(self.organisation, key, self._source) if self._noise.simulated else 1"
        ),
    ): "secure noise only counts the indices that it is given",
    (
        "murk/producers/producer.py",
        (
            "-        return below(self._noise.words(indices, 1 if exact else CANDIDATES, purpose), n)\n"
            "+        return below(self._noise.words(indices, 2 if exact else CANDIDATES, purpose), n)"
        ),
    ): "of a power of two the first candidate is always taken",
    (
        "murk/producers/ledger/spending.py",
        "-            chunk += chunk[-1:] * ((1 << (len(chunk) - 1).bit_length()) - len(chunk))\n+            pass",
    ): "how many statements are prepared",
    (
        "murk/populations/public_sample.py",
        "-    if share <= probability:\n+    if share < probability:",
    ): "where both are the same the bound is 1 as well",
    (
        "murk/privacy/central/sketch_tight.py",
        "-    return float(np.max(total[highest >= floor]))\n+    return float(np.max(total[highest > floor]))",
    ): "the cell before it begins where this one ends, and has no less",
    (
        "murk/populations/people.py",
        "-BLOCK = 2048\n+BLOCK = 2049",
    ): "how many records are worked on at once",
    (
        "murk/populations/ledger_places.py",
        "-    if len(noted) > 1:\n+    if len(noted) >= 1:",
    ): "of one ledger both are itself",
    (
        "murk/producers/ledger/statements.py",
        (
            '-        most = _most(Cap(0, "", currency, 0, 0), histories, prices)\n'
            '+        most = _most(Cap(0, "", currency, 1, 0), histories, prices)'
        ),
    ): "how large the cap is has no part in what is spent",
    (
        "murk/populations/file_source.py",
        "-SELECT_CHUNK = 65_536\n+SELECT_CHUNK = 65537",
    ): "rows with the smallest keys are the same, however they are cut",
    (
        "murk/populations/file_source.py",
        (
            "-        self, start: int = 0, size: int | Callable[[], int] = 4096, *, excluded: Collection[int] = ()\n"
            "+        self, start: int = 0, size: int | Callable[[], int] = 4097, *, excluded: Collection[int] = ()"
        ),
    ): "how many records are worked on at once",
    (
        "murk/populations/records/tables.py",
        "-    elif kinds <= {int, float, type(None)}:\n+    elif kinds < {int, float, type(None)}:",
    ): "a closer look at plain numbers finds nothing",
    (
        "murk/populations/records/files.py",
        "-CHUNK = 2**20\n+CHUNK = 2**21",
    ): "how much is read at once",
    (
        "murk/producers/organisation.py",
        (
            '-            assert count > 0, "a window that is full has ended"\n'
            '+            assert count >= 0, "a window that is full has ended"'
        ),
    ): "a window that goes on has room",
    (
        "murk/populations/people.py",
        "-_SHORTEST, _LONGEST = 0.005, 0.05\n+_SHORTEST, _LONGEST = 0.01, 0.05",
    ): "how often it is looked",
    (
        "murk/populations/people.py",
        "-_SHORTEST, _LONGEST = 0.005, 0.05\n+_SHORTEST, _LONGEST = 0.005, 0.1",
    ): "how often it is looked",
    (
        "murk/populations/people.py",
        "-        pause = min(_LONGEST, 1.2 * pause)\n+        pause = min(_LONGEST, 2.4 * pause)",
    ): "how often it is looked",
    (
        "murk/populations/people.py",
        "-            progress = [(False, -1)]\n+            progress = [(False, -2)]",
    ): "no partition stands there, either",
    (
        "murk/populations/people.py",
        "-        time.sleep(pause)\n+        pass",
    ): "without a pause it is looked more often",
    (
        "murk/populations/people.py",
        "-        return True, 0\n+        return True, 1",
    ): "how far it is matters only until it is done",
    (
        "murk/populations/public_sample.py",
        "-CHUNK: Final = 65_536\n+CHUNK: Final = 65537",
    ): "how many rows are read at once",
    (
        "murk/populations/public_sample.py",
        (
            "-    if 2 * split > of * _split_share(ratio) and _log_tail(alone - new, alone, 1.0 / (1.0 + ratio)) < UNLI"
            "KELY:\n"
            "+    if 2 * split > of * _split_share(ratio) and _log_tail(alone - new, alone, 1.0 / (1.0 + ratio)) <= UNL"
            "IKELY:"
        ),
    ): "a logarithm is no round number",
    (
        "murk/populations/public_sample.py",
        (
            "-    return _log_tail(split, of, _split_share(min(max(low, 1.0), high))) < UNLIKELY\n"
            "+    return _log_tail(split, of, _split_share(min(max(low, 1.0), high))) <= UNLIKELY"
        ),
    ): "a logarithm is no round number",
    (
        "murk/populations/public_sample.py",
        (
            "-    return min(bounds) < UNLIKELY and _is_subsequence(mine, theirs)\n"
            "+    return min(bounds) <= UNLIKELY and _is_subsequence(mine, theirs)"
        ),
    ): "a logarithm is no round number",
    (
        "murk/populations/public_sample.py",
        (
            "-    return bool(len(np.intersect1d(once[0], once[1], assume_unique=True)))\n"
            "+    return bool(len(np.intersect1d(once[0], once[1], assume_unique=False)))"
        ),
    ): "there is none twice in either",
    (
        "murk/populations/public_sample.py",
        "-    for t in np.logspace(-7, 1, 60):\n+    for t in np.logspace(-8, 1, 60):",
    ): "each of them gives a bound",
    (
        "murk/populations/public_sample.py",
        "-    for t in np.logspace(-7, 1, 60):\n+    for t in np.logspace(-7, 1, 61):",
    ): "each of them gives a bound",
    (
        "murk/populations/public_sample.py",
        "-    last = -1\n+    last = -2",
    ): "no place is below zero",
    (
        "murk/producers/ledger/schema.py",
        "-CACHE_KIB = 16_384\n+CACHE_KIB = 16385",
    ): "how much of the file is held in memory",
    (
        "murk/producers/producer.py",
        "-CANDIDATES = 64\n+CANDIDATES = 65",
    ): "the first word that serves is taken",
    (
        "murk/producers/ledger/spending.py",
        (
            "-            chunk += chunk[-1:] * ((1 << (len(chunk) - 1).bit_length()) - len(chunk))\n"
            "+            chunk += chunk[-2:] * ((1 << (len(chunk) - 1).bit_length()) - len(chunk))"
        ),
    ): "a name may be repeated as often as one likes",
    (
        "murk/producers/ledger/spending.py",
        (
            "-            chunk += chunk[-1:] * ((1 << (len(chunk) - 1).bit_length()) - len(chunk))\n"
            "+            chunk += chunk[-1:] * ((1 << (len(chunk) + 1).bit_length()) - len(chunk))"
        ),
    ): "a name may be repeated as often as one likes",
    (
        "murk/producers/ledger/spending.py",
        (
            "-            chunk += chunk[-1:] * ((1 << (len(chunk) - 1).bit_length()) - len(chunk))\n"
            "+            chunk += chunk[-1:] * ((1 << (len(chunk) - 1).bit_length()) + len(chunk))"
        ),
    ): "a name may be repeated as often as one likes",
}
