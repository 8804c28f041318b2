# SPDX-License-Identifier: Apache-2.0
"""Writes SQL for the sqlite3 shell: tables, indexes, joins, updates, deletes, JSON, aggregates.

Usage: sqlite_source.py SIZE (hundreds of rows) OUTPUT. The same size gives the same file.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

HEAD = """PRAGMA journal_mode = MEMORY;
PRAGMA cache_size = 20000;
CREATE TABLE item (id INTEGER PRIMARY KEY, kind TEXT, price REAL, facts TEXT);
CREATE TABLE sale (id INTEGER PRIMARY KEY, item INTEGER, day TEXT, count INTEGER, note TEXT);
CREATE INDEX sale_item ON sale (item, day);
"""

QUERIES = """SELECT kind, count(*), round(sum(price), 2) FROM item GROUP BY kind ORDER BY kind;
SELECT i.kind, s.day, sum(s.count) FROM sale s JOIN item i ON i.id = s.item
    GROUP BY i.kind, s.day ORDER BY 3 DESC, 1, 2 LIMIT 20;
WITH RECURSIVE chain (n, text) AS (SELECT 1, 'x' UNION ALL
    SELECT n + 1, text || hex(n) FROM chain WHERE n < 400) SELECT max(length(text)) FROM chain;
SELECT json_extract(facts, '$.size'), count(*) FROM item GROUP BY 1 ORDER BY 1;
SELECT length(group_concat(note, ',')) FROM sale;
UPDATE sale SET note = upper(note) || '!' WHERE item % 3 = 0;
DELETE FROM sale WHERE count % 5 = 1;
SELECT count(DISTINCT note), min(note), max(note) FROM sale;
CREATE INDEX sale_note ON sale (note);
SELECT day, count(*) FROM sale WHERE note LIKE '%9%' GROUP BY day ORDER BY day;
SELECT item, group_concat(count, ' ') FROM (SELECT * FROM sale ORDER BY id)
    GROUP BY item ORDER BY sum(count) DESC, item LIMIT 10;
VACUUM;
PRAGMA integrity_check;
"""


def main() -> None:
    """Writes the file: inserts one statement a row, as a program would send them."""
    source = random.Random(20261120)
    rows = 100 * int(sys.argv[1])
    lines = [HEAD, "BEGIN;"]
    for i in range(rows // 4):
        facts = f'{{"size": {source.randrange(9)}, "tags": ["a{i}", "b{source.randrange(99)}"]}}'
        price = source.randrange(1, 10**5) / 100
        lines.append(f"INSERT INTO item VALUES ({i}, 'kind {i % 17}', {price}, '{facts}');")
    for i in range(rows):
        item, day = source.randrange(rows // 4), f"2026-11-{source.randrange(1, 31):02}"
        note = "n" * source.randrange(60) + str(source.randrange(10**6))
        lines.append(
            f"INSERT INTO sale VALUES ({i}, {item}, '{day}', {source.randrange(40)}, '{note}');"
        )
    lines += ["COMMIT;", QUERIES]
    Path(sys.argv[2]).write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
