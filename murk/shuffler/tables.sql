CREATE TABLE places ("partition" INTEGER PRIMARY KEY, "offset" INTEGER NOT NULL);

-- `sealed` is the number among the log's crowds; NULL while the crowd takes releases. `bits` of an id decide its part.
CREATE TABLE crowds (crowd INTEGER PRIMARY KEY AUTOINCREMENT, level TEXT NOT NULL, version INTEGER NOT NULL, bits INTEGER NOT NULL, count INTEGER NOT NULL, since INTEGER NOT NULL, sealed INTEGER);

-- A part of a crowd, under crowd * 2^32 + part: its releases, sorted by their new ids. Rows in the order of this key have no order of arrival.
CREATE TABLE waiting (place INTEGER PRIMARY KEY, count INTEGER NOT NULL, records BLOB NOT NULL);

CREATE TABLE models (version INTEGER PRIMARY KEY, message BLOB NOT NULL);

CREATE TABLE counts ("partition" INTEGER, name TEXT, count INTEGER NOT NULL, PRIMARY KEY ("partition", name)) WITHOUT ROWID;
