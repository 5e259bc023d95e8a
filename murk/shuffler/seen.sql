-- Fingerprints of the ids up to an offset, sorted and cut into parts by their first `bits`.
CREATE TABLE runs (run INTEGER PRIMARY KEY AUTOINCREMENT, "partition" INTEGER NOT NULL, last INTEGER NOT NULL, bits INTEGER NOT NULL, count INTEGER NOT NULL);

-- A part of a run, under run * 2^32 + part: fingerprints with their newest offsets.
CREATE TABLE prints (place INTEGER PRIMARY KEY, seen BLOB NOT NULL);
