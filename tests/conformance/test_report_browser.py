"""The page of a report in a real browser: it renders, it folds, it leads where it says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from medusa_conformance.html import html
from medusa_spec.files import write_text
from medusa_spec.registry import invariants

BUILDERS = ("passing", "failing", "inconclusive", "at_large")
SCREENS = [(1280, 800, "light"), (1280, 800, "dark"), (390, 844, "light"), (390, 844, "dark")]

# The ratio of WCAG 2.2 for every text that shows, against the first ground that is not clear;
# pictures answer for their own colours elsewhere.
FAINTEST = """(() => {
    const parts = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const luminance = (colour) => parts(colour).slice(0, 3)
        .map((part) => part / 255)
        .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
    const clear = (colour) => parts(colour)[3] === 0;
    let faintest = [21, ""];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
        const element = node.parentElement;
        if (!node.data.trim() || element.closest("script, svg") || !element.checkVisibility()) {
            continue;
        }
        let ground = element;
        while (ground.parentElement && clear(getComputedStyle(ground).backgroundColor)) {
            ground = ground.parentElement;
        }
        const two = [getComputedStyle(element).color, getComputedStyle(ground).backgroundColor]
            .map(luminance).sort((a, b) => b - a);
        const opacity = element.closest("dt") ? Number(getComputedStyle(element).opacity) : 1;
        const ratio = (two[0] + 0.05) / (two[1] + 0.05) * opacity;
        if (ratio < faintest[0]) faintest = [ratio, node.data.trim()];
    }
    return faintest;
})()"""
LINKS = "[...document.querySelectorAll('a[href^=\"#\"]')].map((a) => a.getAttribute('href'))"
# Neither behind the bar of sections nor below the screen.
IN_SIGHT = """(() => {
    const box = document.querySelector(":target").getBoundingClientRect();
    const bar = document.querySelector("nav").getBoundingClientRect();
    return box.top >= bar.bottom - 1 && box.top < innerHeight;
})()"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, report_documents: ModuleType) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    for name in BUILDERS:
        write_text(folder / f"{name}.html", html(getattr(report_documents, name)()))
    return folder


@pytest.fixture
def opened(browser: Any, pages: Path) -> Any:
    """Open one of the pages on a screen; nothing may be asked for but the page itself."""

    def show(name: str, width: int = 1280, height: int = 800, scheme: str = "light") -> Any:
        browser.screen(width, height, scheme)
        address = (pages / f"{name}.html").as_uri()
        browser.open(address)
        return browser

    yield show
    assert browser.complaints() == []
    assert {address.partition("#")[0] for address in browser.requests()} <= {
        (pages / f"{name}.html").as_uri() for name in BUILDERS
    }


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("passing", "PASS"),
        ("failing", "FAIL"),
        ("inconclusive", "INCONCLUSIVE"),
        ("at_large", "FAIL"),
    ],
)
def test_the_verdict_is_the_first_thing_to_see(opened: Any, name: str, verdict: str) -> None:
    page = opened(name)
    assert page.value("document.title").startswith(f"{verdict}: ")
    assert page.value("document.querySelector('#verdict').innerText") == verdict
    box = page.value("document.querySelector('#verdict').getBoundingClientRect().toJSON()")
    assert box["height"] > 40
    assert box["bottom"] < 200


@pytest.mark.parametrize(("width", "height", "scheme"), SCREENS)
@pytest.mark.parametrize("name", BUILDERS)
def test_legible_and_as_wide_as_the_screen(
    opened: Any, name: str, width: int, height: int, scheme: str
) -> None:
    page = opened(name, width, height, scheme)
    page.value("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    assert page.value("document.documentElement.scrollWidth") == width
    # An element that is wider than the screen scrolls inside its own frame.
    page.value("scrollTo({left: 500, behavior: 'instant'})")
    assert page.value("scrollX") == 0
    ratio, words = page.value(FAINTEST)
    assert ratio >= 4.5, words
    ground = page.value("getComputedStyle(document.body).backgroundColor")
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}[scheme]


def test_folds_open_and_close(opened: Any) -> None:
    page = opened("failing")
    state = "[document.querySelector('#finding-1 details').open,"
    state += " document.querySelector('#finding-1 .follows').checkVisibility()]"
    assert page.value(state) == [False, False]
    page.click("#finding-1 details summary")
    assert page.value(state) == [True, True]
    page.click("#finding-1 details summary")
    assert page.value(state) == [False, False]


@pytest.mark.parametrize("name", BUILDERS)
def test_every_link_leads_to_something_in_sight(opened: Any, name: str) -> None:
    page = opened(name)
    links = page.value(LINKS)
    assert len(set(links)) > 80
    for link in sorted(set(links)):
        found = page.value(
            f"(location.hash = {link!r}, document.querySelector(':target') !== null)"
        )
        assert found, link
        assert page.value(IN_SIGHT), link


@pytest.mark.parametrize("width", [1280, 390])
def test_a_click_on_a_code_goes_to_its_row(opened: Any, width: int) -> None:
    page = opened("failing", width)
    page.click("#finding-1 h3 a")
    page.wait("location.hash === '#TREE.MASK_IS_ANCESTRY'")
    page.wait(f"{IN_SIGHT} && scrollY > 1000")
    page.click("[id='TREE.MASK_IS_ANCESTRY'] .note a")
    page.wait(f"location.hash === '#finding-1' && {IN_SIGHT} && scrollY < 1000")


SHOWN = """[...document.querySelectorAll("[data-status]")]
    .filter((row) => row.checkVisibility()).map((row) => row.dataset.status)"""
PRESSED = """[...document.querySelectorAll(".filter [aria-pressed=true]")]
    .map((button) => button.dataset.show)"""


def test_the_filter(opened: Any) -> None:
    page = opened("failing")
    statuses = Counter(page.value(SHOWN))
    assert len(statuses) == 5
    for status, many in statuses.items():
        page.click(f".filter [data-show={status}]")
        assert page.value(SHOWN) == [status] * many
        assert page.value(PRESSED) == [status]
    page.click(".filter [data-show='']")
    assert Counter(page.value(SHOWN)) == statuses


def test_a_link_to_a_row_that_is_filtered_out_shows_all(opened: Any) -> None:
    page = opened("failing")
    page.click(".filter [data-show=pass]")
    page.click("#finding-1 h3 a")
    page.wait(f"location.hash === '#TREE.MASK_IS_ANCESTRY' && {IN_SIGHT}")
    assert page.value(PRESSED) == [""]


def test_the_replay_line_is_copied(opened: Any) -> None:
    page = opened("failing")
    page.value(
        "document.addEventListener('copy', () => { window.copied = String(getSelection()); })"
    )
    page.value("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.click("#finding-2 .copy")
    line = "medusa-oracles replay findings/02-TREE.RETRIEVAL_MAXIMAL.json"
    page.wait(f"window.copied === '{line}'")
    page.wait("document.querySelector('#finding-2 .copy').innerText === 'Copied'")


def test_where_the_clipboard_is_refused_the_line_is_copied_by_hand(opened: Any) -> None:
    page = opened("failing")
    page.value(
        "document.addEventListener('copy', () => { window.copied = String(getSelection()); })"
    )
    page.value("navigator.clipboard.writeText = async () => { throw new Error('refused'); }")
    page.click("#finding-1 .copy")
    page.wait("window.copied === 'medusa-oracles replay findings/01-TREE.MASK_IS_ANCESTRY.json'")


def test_without_scripts_nothing_is_missing_but_comfort(browser: Any, pages: Path) -> None:
    browser.screen(1280, 800)
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.call("Page.navigate", url=(pages / "failing.html").as_uri())
        browser.wait("document.readyState === 'complete'")
        hidden = "document.querySelector({!r}).checkVisibility()"
        assert not browser.value(hidden.format(".filter"))
        assert not browser.value(hidden.format("#finding-1 .copy"))
        assert len(browser.value(SHOWN)) == len(invariants())
        browser.click("#finding-1 details summary")
        assert browser.value("document.querySelector('#finding-1 details').open")
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
