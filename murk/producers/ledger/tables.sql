-- A task that people may release to; `log` is the identity of its only log. `simulated` is NULL if unknown; `window` is
-- that in which its budget renews; `known` names the columns that are sent as they are; `archive` says what people are
-- told about an archive of the releases.
CREATE TABLE IF NOT EXISTS tasks (
    number INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, name TEXT NOT NULL, log TEXT NOT NULL,
    simulated INTEGER, window TEXT NOT NULL DEFAULT 'none', known TEXT NOT NULL DEFAULT '',
    archive TEXT NOT NULL DEFAULT '');

-- Files that people released from, by a keyed hash (`names`) of their SHA-256: from an unkeyed digest anyone who knows
-- all records but one can guess the last. Number 0 means that an application names people and records.
CREATE TABLE IF NOT EXISTS sources (number INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE);

-- Caps promised to everyone in each currency: over all tasks (0) or in one, for releases at one level or at any ('').
-- With `renews` a cap holds in each of the task's windows, else for all time.
CREATE TABLE IF NOT EXISTS promises (
    task INTEGER NOT NULL, level TEXT NOT NULL, currency TEXT NOT NULL, renews INTEGER NOT NULL CHECK (renews IN (0, 1)),
    units INTEGER NOT NULL CHECK (units >= 0), delta_units INTEGER NOT NULL CHECK (delta_units >= 0),
    PRIMARY KEY (task, level, currency, renews)) WITHOUT ROWID;

-- Changes of promises, by day (seconds since 1970); NULL is no cap.
CREATE TABLE IF NOT EXISTS changes (
    number INTEGER PRIMARY KEY, day INTEGER NOT NULL, task INTEGER NOT NULL, level TEXT NOT NULL, currency TEXT NOT NULL,
    renews INTEGER NOT NULL, units_before INTEGER, delta_before INTEGER, units INTEGER, delta_units INTEGER);

-- Cost of one release at a level, in every currency in which it has a valid bound (else NULL).
CREATE TABLE IF NOT EXISTS tariffs (
    number INTEGER PRIMARY KEY, task INTEGER NOT NULL REFERENCES tasks, level TEXT NOT NULL,
    mechanism TEXT NOT NULL, claims TEXT NOT NULL,
    rho INTEGER CHECK (rho >= 0), epsilon INTEGER CHECK (epsilon >= 0),
    approx INTEGER CHECK (approx >= 0), delta INTEGER CHECK (delta >= 0), gdp INTEGER CHECK (gdp >= 0));

-- Randomized records. A record's key is its row in a file, or a keyed hash of the application's key; it is never
-- randomized again. A person is a row, or a keyed hash of their name (`names`).
CREATE TABLE IF NOT EXISTS debits (
    task INTEGER NOT NULL, source INTEGER NOT NULL, key NOT NULL, person NOT NULL,
    tariff INTEGER NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (task, source, key, person)) WITHOUT ROWID;

-- Releases by person and price (`tariff`). `home` is the file whose rows are people, 0 for people with a name. `first`
-- and `last` are the days of the first and the last release (seconds since 1970, NULL if unknown).
CREATE TABLE IF NOT EXISTS spending (
    home INTEGER NOT NULL, person NOT NULL, tariff INTEGER NOT NULL,
    released INTEGER NOT NULL CHECK (released >= 0), refused INTEGER NOT NULL CHECK (refused >= 0),
    dropped INTEGER NOT NULL CHECK (dropped >= 0 AND dropped <= released), first INTEGER, last INTEGER,
    PRIMARY KEY (home, person, tariff)) WITHOUT ROWID;

-- The newest window in which a person has released to a task, the number of windows so far, and the releases in the
-- newest one as "PRICE:COUNT,...". `newest` never decreases, so that a clock that was set back renews nothing.
CREATE TABLE IF NOT EXISTS renewals (
    task INTEGER NOT NULL, home INTEGER NOT NULL, person NOT NULL,
    newest INTEGER NOT NULL, windows INTEGER NOT NULL CHECK (windows > 0), history TEXT NOT NULL,
    PRIMARY KEY (task, home, person)) WITHOUT ROWID;

-- One record of each person and window, which is released from `due` on (seconds since 1970): a time after the window's
-- end, drawn with its first record. The coded record, its number among the window's records and the person's name are
-- encrypted under the ledger's key, anew with each of these records (`held`).
CREATE TABLE IF NOT EXISTS held (
    task INTEGER NOT NULL, person NOT NULL, window INTEGER NOT NULL, level TEXT NOT NULL,
    due INTEGER NOT NULL, record BLOB NOT NULL,
    PRIMARY KEY (task, person, window)) WITHOUT ROWID;

-- The last answer of a person to a task that repeats it while their record does not change, encrypted under the ledger's
-- key (`memos`).
CREATE TABLE IF NOT EXISTS memos (
    task INTEGER NOT NULL, person NOT NULL, level TEXT NOT NULL, memo BLOB NOT NULL,
    PRIMARY KEY (task, person)) WITHOUT ROWID;

-- People who have withdrawn from a task (0: from all), and the day.
CREATE TABLE IF NOT EXISTS withdrawals (
    home INTEGER NOT NULL, person NOT NULL, task INTEGER NOT NULL, day INTEGER,
    PRIMARY KEY (home, person, task)) WITHOUT ROWID;

-- Releases that the log has not confirmed. `message` is sent unchanged, however often; `since` is the end of the log's
-- partition before it was first sent; `owner` is encrypted under the ledger's key (`transaction.seal`).
CREATE TABLE IF NOT EXISTS outbox (
    number INTEGER PRIMARY KEY, task INTEGER NOT NULL, partition INTEGER NOT NULL, since INTEGER NOT NULL,
    expires INTEGER NOT NULL, message BLOB NOT NULL, owner BLOB NOT NULL, tariff INTEGER NOT NULL);

-- Accounts in the sums last reported to others, and these sums: one baseline for all exporters.
CREATE TABLE IF NOT EXISTS reported (
    task INTEGER NOT NULL, home INTEGER NOT NULL, person NOT NULL, state TEXT NOT NULL,
    PRIMARY KEY (task, home, person)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS reports (task INTEGER PRIMARY KEY, round INTEGER NOT NULL, sums TEXT);

-- Progress of a task through a file. `people` says how its people are named; `excluded` are the rows that release
-- nothing, as little-endian int64; `next_row` is the number of rows done, in the order of release.
CREATE TABLE IF NOT EXISTS runs (
    task INTEGER NOT NULL, source INTEGER NOT NULL, people TEXT NOT NULL, excluded BLOB NOT NULL,
    next_row INTEGER NOT NULL CHECK (next_row >= 0), counters TEXT NOT NULL,
    PRIMARY KEY (task, source)) WITHOUT ROWID;

-- Number of the next release.
INSERT OR IGNORE INTO meta VALUES ('next', 1);
