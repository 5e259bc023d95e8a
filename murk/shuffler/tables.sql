-- The last column of every table is a checksum of the others: a damaged row is refused, not used.
CREATE TABLE places ("partition" INTEGER PRIMARY KEY, "offset" INTEGER NOT NULL, "check" INTEGER NOT NULL);

-- `sealed` is the number among the log's crowds; NULL while the crowd takes releases. `bits` of an id decide its part.
CREATE TABLE crowds (crowd INTEGER PRIMARY KEY AUTOINCREMENT, level TEXT NOT NULL, version INTEGER NOT NULL, bits INTEGER NOT NULL, count INTEGER NOT NULL, since INTEGER NOT NULL, sealed INTEGER, "check" INTEGER NOT NULL);

-- A part of a crowd, under crowd * 2^32 + part: its releases, sorted by their new ids. Rows in the order of this key have no order of arrival.
CREATE TABLE waiting (place INTEGER PRIMARY KEY, count INTEGER NOT NULL, records BLOB NOT NULL, "check" INTEGER NOT NULL);

-- Relayed models, and when they were.
CREATE TABLE models (version INTEGER PRIMARY KEY, message BLOB NOT NULL, since INTEGER NOT NULL, "check" INTEGER NOT NULL);

CREATE TABLE counts ("partition" INTEGER, name TEXT, count INTEGER NOT NULL, "check" INTEGER NOT NULL, PRIMARY KEY ("partition", name)) WITHOUT ROWID;

-- Fingerprints of the ids of releases that expire up to the time `until`, sorted and cut into parts by their first `bits`.
CREATE TABLE runs (run INTEGER PRIMARY KEY AUTOINCREMENT, until INTEGER NOT NULL, bits INTEGER NOT NULL, count INTEGER NOT NULL, "check" INTEGER NOT NULL);

-- A part of a run, under run * 2^32 + part: 8 bytes for each fingerprint.
CREATE TABLE prints (place INTEGER PRIMARY KEY, seen BLOB NOT NULL, "check" INTEGER NOT NULL);
