CREATE TABLE places ("partition" INTEGER PRIMARY KEY, "offset" INTEGER NOT NULL);

-- Offsets and ids of a batch in one row, and the last of the offsets.
CREATE TABLE seen ("partition" INTEGER, last INTEGER, ids BLOB NOT NULL, PRIMARY KEY ("partition", last));

-- `sealed` is the number among the log's crowds; NULL while the crowd takes releases.
CREATE TABLE crowds (crowd INTEGER PRIMARY KEY AUTOINCREMENT, level TEXT NOT NULL, version INTEGER NOT NULL, count INTEGER NOT NULL, since INTEGER NOT NULL, sealed INTEGER);

CREATE TABLE waiting (crowd INTEGER, key BLOB, chain INTEGER NOT NULL, message BLOB NOT NULL, PRIMARY KEY (crowd, key)) WITHOUT ROWID;

CREATE TABLE models (version INTEGER PRIMARY KEY, message BLOB NOT NULL);

CREATE TABLE counts ("partition" INTEGER, name TEXT, count INTEGER NOT NULL, PRIMARY KEY ("partition", name)) WITHOUT ROWID;
