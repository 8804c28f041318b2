// SPDX-License-Identifier: Apache-2.0
// Tables: a click on the head of a column sorts, and long tables have a filter.
"use strict";
(() => {
    const FILTERED_MIN = 8;
    const SCALES = { KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40 };

    // The number of a cell such as "1.5 MiB", "12.0 %" or "3,476"; NaN if there is none.
    function numberOf(text) {
        const [number, unit] = text.trim().split(" ");
        return parseFloat(number.replaceAll(",", "")) * (SCALES[unit] ?? 1);
    }
    // What comes first: cells without a number are last in either direction.
    function compare(a, b, isNumber, sign) {
        if (!isNumber) return sign * a.localeCompare(b);
        const one = numberOf(a), other = numberOf(b);
        if (isNaN(one) || isNaN(other)) return isNaN(one) - isNaN(other);
        return sign * (one - other);
    }
    function sortable(table) {
        const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
        heads.forEach((head, column) => {
            const button = document.createElement("button");
            button.textContent = head.textContent;
            head.replaceChildren(button);
            button.addEventListener("click", () => {
                const isNumber = head.classList.contains("number");
                const before = head.getAttribute("aria-sort") ?? (isNumber ? "ascending" : "");
                const now = before === "ascending" ? "descending" : "ascending";
                const sign = now === "ascending" ? 1 : -1;
                const text = (row) => row.cells[column].firstChild?.textContent ?? "";
                const rows = [...body.rows];
                rows.sort((a, b) => compare(text(a), text(b), isNumber, sign));
                body.append(...rows);
                heads.forEach((one) => one.removeAttribute("aria-sort"));
                head.setAttribute("aria-sort", now);
            });
        });
    }
    function filterable(table) {
        if (table.tBodies[0].rows.length < FILTERED_MIN) return;
        const tools = document.createElement("p"), input = document.createElement("input");
        const count = document.createElement("output");
        tools.className = "tools";
        input.type = "search";
        input.placeholder = "filter rows";
        input.setAttribute("aria-label", "filter rows");
        tools.append(input, count);
        table.parentElement.before(tools);
        input.addEventListener("input", () => {
            const wanted = input.value.toLowerCase(), rows = [...table.tBodies[0].rows];
            for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
            const shown = rows.filter((row) => !row.hidden).length;
            count.textContent = wanted ? `${shown} of ${rows.length} rows` : "";
        });
    }
    for (const table of document.querySelectorAll("main table")) {
        sortable(table);
        filterable(table);
    }
})();
