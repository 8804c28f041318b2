// SPDX-License-Identifier: Apache-2.0
// Results of the full-text search link to the section, function or class with most of the words.
"use strict";

// The text of an element without the sections and definitions in it, which have anchors themselves.
function ownText(element) {
    const copy = element.cloneNode(true);
    for (const inner of copy.querySelectorAll("section, dl.py, dl.c, dl.cpp, .headerlink")) inner.remove();
    return copy.textContent.toLowerCase();
}

// Return the id of the first place with most of the words; "" at the top of the page.
function placeOf(html, words) {
    const page = new DOMParser().parseFromString(html, "text/html");
    const [top, ...places] = page.querySelectorAll("[role=main] section[id], [role=main] dt[id]");
    const wanted = [...words].map((word) => word.toLowerCase());
    const count = (text) => wanted.filter((word) => text.includes(word)).length;
    let best = "", most = top ? count(ownText(top)) : 0;
    for (const place of places) {
        const body = place.localName === "dt" ? place.parentElement.querySelector(":scope > dd") : null;
        const found = count(ownText(place) + " " + (body ? ownText(body) : ""));
        if (found > most) [best, most] = [place.id, found];
    }
    return best;
}

document.addEventListener("DOMContentLoaded", () => {
    if (typeof Search === "undefined") return; // only search.html has it
    const summaryOf = Search.makeSearchSummary;
    Search.makeSearchSummary = (html, words, anchor) => {
        const summary = summaryOf(html, words, anchor), id = anchor ? "" : placeOf(html, words);
        // The caller adds the summary to the result next.
        if (id) queueMicrotask(() => (summary.parentElement.querySelector("a").hash = id));
        return summary;
    };
});
