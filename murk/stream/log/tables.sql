-- begin and end must outlive the messages. `check` is a checksum of the row here and below.
CREATE TABLE streams ("partition" INTEGER PRIMARY KEY, begin INTEGER NOT NULL, "end" INTEGER NOT NULL, "check" INTEGER NOT NULL);

-- With rowids: without them, SQLite reads a whole row for each comparison of its key.
CREATE TABLE batches ("partition" INTEGER NOT NULL, "offset" INTEGER NOT NULL, time INTEGER NOT NULL, value BLOB NOT NULL, number INTEGER NOT NULL, "check" INTEGER NOT NULL, PRIMARY KEY ("partition", "offset"));

CREATE TABLE dead_letters ("partition" INTEGER, "offset" INTEGER, time INTEGER NOT NULL, reason TEXT NOT NULL, detail TEXT NOT NULL, value BLOB NOT NULL, "check" INTEGER NOT NULL, PRIMARY KEY ("partition", "offset")) WITHOUT ROWID;

CREATE TABLE models (partition INTEGER PRIMARY KEY, message BLOB NOT NULL, "check" INTEGER NOT NULL);

CREATE TABLE states (partition INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, "offset" INTEGER NOT NULL, state BLOB, "check" INTEGER NOT NULL);

-- Partitions' states of further models; `epoch` is no part of the checksum
CREATE TABLE model_states (model TEXT NOT NULL, partition INTEGER NOT NULL, epoch INTEGER NOT NULL, "offset" INTEGER NOT NULL, state BLOB, "check" INTEGER NOT NULL, PRIMARY KEY (model, partition));

-- Published estimates of the task's learner and of further models
CREATE TABLE estimates (key TEXT PRIMARY KEY, message BLOB NOT NULL, "check" INTEGER NOT NULL);
