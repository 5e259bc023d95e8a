PRAGMA application_id = 1299542636;
BEGIN TRANSACTION;
CREATE TABLE debits (
    task INTEGER NOT NULL, source INTEGER NOT NULL, key NOT NULL, person NOT NULL,
    tariff INTEGER NOT NULL, number INTEGER NOT NULL,
    PRIMARY KEY (task, source, key, person)) WITHOUT ROWID;
INSERT INTO "debits" VALUES(1,0,5,'Zoé',2,5);
INSERT INTO "debits" VALUES(1,0,6,'bob',2,6);
INSERT INTO "debits" VALUES(1,0,'k',' ann',1,2);
INSERT INTO "debits" VALUES(1,0,'k','ann',1,1);
INSERT INTO "debits" VALUES(1,0,'k','ann​',1,3);
INSERT INTO "debits" VALUES(1,0,'m','Zoé',1,4);
INSERT INTO "debits" VALUES(1,1,0,0,1,7);
INSERT INTO "debits" VALUES(1,1,1,1,1,8);
INSERT INTO "debits" VALUES(1,1,2,2,1,9);
INSERT INTO "debits" VALUES(1,2,5,'ann ',2,10);
INSERT INTO "debits" VALUES(1,2,6,'carl',2,11);
INSERT INTO "debits" VALUES(2,0,12,'dora',3,12);
INSERT INTO "debits" VALUES(2,0,13,'dora',3,13);
INSERT INTO "debits" VALUES(2,0,14,'dora',3,14);
INSERT INTO "debits" VALUES(2,0,15,'dora',3,15);
INSERT INTO "debits" VALUES(2,0,16,'do	ra',3,16);
INSERT INTO "debits" VALUES(3,0,17,'ann',4,17);
CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
INSERT INTO "meta" VALUES('format',1);
INSERT INTO "meta" VALUES('identity','97df31039617d445d072d56f29496dd4');
INSERT INTO "meta" VALUES('next',18);
CREATE TABLE outbox (
    number INTEGER PRIMARY KEY, task INTEGER NOT NULL, chain INTEGER NOT NULL, since INTEGER NOT NULL,
    expires INTEGER NOT NULL, message BLOB NOT NULL,
    home INTEGER NOT NULL, person NOT NULL, tariff INTEGER NOT NULL);
INSERT INTO "outbox" VALUES(3,1,0,0,1000,X'33',0,'ann​',1);
INSERT INTO "outbox" VALUES(5,1,0,0,1000,X'35',0,'Zoé',2);
INSERT INTO "outbox" VALUES(6,1,0,0,1000,X'36',0,'bob',2);
INSERT INTO "outbox" VALUES(7,1,0,0,1000,X'37',1,0,1);
INSERT INTO "outbox" VALUES(8,1,0,0,1000,X'38',1,1,1);
INSERT INTO "outbox" VALUES(9,1,0,0,1000,X'39',1,2,1);
INSERT INTO "outbox" VALUES(10,1,0,0,1000,X'3130',0,'ann ',2);
INSERT INTO "outbox" VALUES(11,1,0,0,1000,X'3131',0,'carl',2);
INSERT INTO "outbox" VALUES(12,2,0,0,1000,X'3132',0,'dora',3);
INSERT INTO "outbox" VALUES(13,2,0,0,1000,X'3133',0,'dora',3);
INSERT INTO "outbox" VALUES(14,2,0,0,1000,X'3134',0,'dora',3);
INSERT INTO "outbox" VALUES(15,2,0,0,1000,X'3135',0,'dora',3);
INSERT INTO "outbox" VALUES(16,2,0,0,1000,X'3136',0,'do	ra',3);
INSERT INTO "outbox" VALUES(17,3,0,0,1000,X'3137',0,'ann',4);
CREATE TABLE promises (
    task INTEGER NOT NULL, level TEXT NOT NULL, currency TEXT NOT NULL,
    units INTEGER NOT NULL CHECK (units >= 0), delta_units INTEGER NOT NULL CHECK (delta_units >= 0),
    PRIMARY KEY (task, level, currency)) WITHOUT ROWID;
INSERT INTO "promises" VALUES(0,'','rho',4500000000000,0);
INSERT INTO "promises" VALUES(1,'default','rho',500000000000,0);
INSERT INTO "promises" VALUES(1,'strict','rho',125000000000,0);
INSERT INTO "promises" VALUES(2,'','rho',2000000000000,0);
INSERT INTO "promises" VALUES(3,'default','rho',500000000000,0);
INSERT INTO "promises" VALUES(4,'default','approx',1000000000000,1000000000);
CREATE TABLE runs (
    task INTEGER NOT NULL, source INTEGER NOT NULL, people TEXT NOT NULL, excluded BLOB NOT NULL,
    next_row INTEGER NOT NULL CHECK (next_row >= 0), counters TEXT NOT NULL,
    PRIMARY KEY (task, source)) WITHOUT ROWID;
INSERT INTO "runs" VALUES(1,2,'column who',X'',0,'{}');
CREATE TABLE sources (number INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE);
INSERT INTO "sources" VALUES(1,'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff');
INSERT INTO "sources" VALUES(2,'eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee');
CREATE TABLE spending (
    home INTEGER NOT NULL, person NOT NULL, tariff INTEGER NOT NULL,
    released INTEGER NOT NULL CHECK (released >= 0), refused INTEGER NOT NULL CHECK (refused >= 0),
    dropped INTEGER NOT NULL CHECK (dropped >= 0 AND dropped <= released),
    PRIMARY KEY (home, person, tariff)) WITHOUT ROWID;
INSERT INTO "spending" VALUES(0,' ann',1,1,0,0);
INSERT INTO "spending" VALUES(0,'Zoé',1,1,0,1);
INSERT INTO "spending" VALUES(0,'Zoé',2,1,0,0);
INSERT INTO "spending" VALUES(0,'ann',1,1,1,0);
INSERT INTO "spending" VALUES(0,'ann',4,1,0,0);
INSERT INTO "spending" VALUES(0,'ann ',2,1,0,0);
INSERT INTO "spending" VALUES(0,'ann​',1,1,0,0);
INSERT INTO "spending" VALUES(0,'bob',2,1,0,0);
INSERT INTO "spending" VALUES(0,'carl',2,1,0,0);
INSERT INTO "spending" VALUES(0,'clinic',5,0,1,0);
INSERT INTO "spending" VALUES(0,'clinic ',5,0,1,0);
INSERT INTO "spending" VALUES(0,'do	ra',3,1,0,0);
INSERT INTO "spending" VALUES(0,'dora',3,4,0,0);
INSERT INTO "spending" VALUES(1,0,1,1,0,0);
INSERT INTO "spending" VALUES(1,1,1,1,0,0);
INSERT INTO "spending" VALUES(1,2,1,1,0,0);
CREATE TABLE tariffs (
    number INTEGER PRIMARY KEY, task INTEGER NOT NULL REFERENCES tasks, level TEXT NOT NULL,
    mechanism TEXT NOT NULL, claims TEXT NOT NULL,
    rho INTEGER CHECK (rho >= 0), epsilon INTEGER CHECK (epsilon >= 0),
    approx INTEGER CHECK (approx >= 0), delta INTEGER CHECK (delta >= 0));
INSERT INTO "tariffs" VALUES(1,1,'default','gaussian','[{"gdp": {"mu": 1.0}}, {"gdp": {"mu": 0.99999809265546}}, {"zcdp": {"rho": 0.4999980926531862}}]',499998092654,NULL,NULL,NULL);
INSERT INTO "tariffs" VALUES(2,1,'strict','gaussian','[{"gdp": {"mu": 0.5}}, {"gdp": {"mu": 0.49999809265341355}}, {"zcdp": {"rho": 0.1249990463275026}}]',124999046328,NULL,NULL,NULL);
INSERT INTO "tariffs" VALUES(3,2,'default','l2-ball','[{"pure": {"epsilon": 1.0}}, {"pure": {"epsilon": 1.0}}]',500000000000,1000000000000,1000000000000,0);
INSERT INTO "tariffs" VALUES(4,3,'default','gaussian','[{"zcdp": {"rho": 0.5}}, {"gdp": {"mu": 1.000000000004093}}, {"zcdp": {"rho": 0.5}}]',500000000000,NULL,NULL,NULL);
INSERT INTO "tariffs" VALUES(5,4,'default','gaussmix','[{"approx": {"delta": 1e-06, "epsilon": 1.0}}, {"approx": {"delta": 1e-06, "epsilon": 1.0}}]',NULL,NULL,1000000000000,1000000000);
CREATE TABLE tasks (
    number INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, name TEXT NOT NULL, log TEXT NOT NULL);
INSERT INTO "tasks" VALUES(1,'1111111111111111111111111111111111111111111111111111111111111111','weeks','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa');
INSERT INTO "tasks" VALUES(2,'2222222222222222222222222222222222222222222222222222222222222222','pure','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa');
INSERT INTO "tasks" VALUES(3,'3333333333333333333333333333333333333333333333333333333333333333','mixed','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa');
INSERT INTO "tasks" VALUES(4,'4444444444444444444444444444444444444444444444444444444444444444','sketch','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa');
CREATE TABLE windows (
    task INTEGER NOT NULL, source INTEGER NOT NULL, key NOT NULL, person NOT NULL,
    opened INTEGER NOT NULL, state TEXT NOT NULL, lost INTEGER NOT NULL DEFAULT 0,
    records INTEGER NOT NULL DEFAULT 0, next_row INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (task, source, key, person)) WITHOUT ROWID;
INSERT INTO "windows" VALUES(4,0,'1','clinic',86400,'released',0,100,0);
INSERT INTO "windows" VALUES(4,0,'1','clinic ',86400,'released',0,100,0);
CREATE TABLE withdrawals (
    home INTEGER NOT NULL, person NOT NULL, task INTEGER NOT NULL,
    PRIMARY KEY (home, person, task)) WITHOUT ROWID;
INSERT INTO "withdrawals" VALUES(0,'Zoé',1);
INSERT INTO "withdrawals" VALUES(0,'bob ',0);
COMMIT;
