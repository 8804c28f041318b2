# SPDX-License-Identifier: Apache-2.0
"""The report in a browser without a screen: it draws, its slider moves, nothing is logged."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import spanwise as sw

from tests.python.helpers import random_ops

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
PROBE = """<script>
(() => {
    const slider = document.getElementById("when"), canvas = document.getElementById("map");
    const moment = document.getElementById("moment"), line = document.getElementById("now");
    const told = [];
    const look = () => {
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        const colours = new Set();
        for (let i = 0; i < data.length; i += 4)
            colours.add(data[i] * 65536 + data[i + 1] * 256 + data[i + 2]);
        let sum = 0;
        data.forEach((value, i) => { sum = (sum * 31 + value * (i % 97 + 1)) % 2147483647; });
        const place = line.getAttribute("x1");
        told.push([slider.value, moment.textContent, place, colours.size, sum].join("|"));
    };
    const head = document.querySelector("header").getBoundingClientRect();
    document.body.dataset.head = Math.round(head.bottom);
    look();
    slider.value = "0";
    slider.dispatchEvent(new Event("input"));
    look();
    document.body.dataset.told = told.join("||");
})();
</script>"""


def is_trouble(line: str) -> bool:
    """Whether a line is of the page's console; the probe's own reading of pixels is told there."""
    return "CONSOLE" in line and "willReadFrequently" not in line


@pytest.mark.skipif(BROWSER is None, reason="there is no chromium on this machine")
def test_the_page_in_a_browser(tmp_path: Path) -> None:
    page = tmp_path / "x.html"
    sw.Recording.from_ops(random_ops(9, 4000), name="mine").to_html(page, "go")
    probed = tmp_path / "probed.html"
    probed.write_text(page.read_text(encoding="utf-8").replace("</body>", PROBE + "</body>"))
    words = [
        *(str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *(f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr"),
    ]
    dom = [*words, "--window-size=794,1123", "--dump-dom", f"file://{probed}"]
    done = subprocess.run(dom, capture_output=True, text=True, timeout=300, check=True)
    assert [line for line in done.stderr.splitlines() if is_trouble(line)] == []
    (told,) = re.findall(r'data-told="([^"]*)"', done.stdout)
    first, second = (one.split("|") for one in told.split("||"))
    assert first[1].startswith("Peak: ") and not second[1].startswith("Peak: ")
    assert second[0] == "0" != first[0]
    assert first[1:3] != second[1:3] and first[4] != second[4]  # words, line and pixels moved
    assert int(first[3]) > 3  # it has colours
    # The answer and its picture fit on the first printed page: A4 at 96 dots an inch, less margins.
    (bottom,) = re.findall(r'data-head="(\d+)"', done.stdout)
    assert int(bottom) < 1123 - 2 * 38
    pdf = tmp_path / "x.pdf"
    printed = [*words, "--no-pdf-header-footer", f"--print-to-pdf={pdf}", f"file://{page}"]
    subprocess.run(printed, capture_output=True, timeout=300, check=True)
    assert pdf.read_bytes()[:5] == b"%PDF-"
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes())) <= 8
