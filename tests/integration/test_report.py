"""The reports in a real browser: a click, a rotation, a phone, no errors."""

import shutil
from functools import partial

import pytest

pytestmark = pytest.mark.slow

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
# Offline and without a screen; the sandbox is not there for root.
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright: pip install playwright"
    )
    if not BROWSER:
        pytest.skip("needs a browser: install chromium")
    with playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=BROWSER, args=list(FLAGS))
        yield launched
        launched.close()


@pytest.fixture
def open_report(browser):
    """Opens a report; fails the test if the page complains or asks for anything else."""
    contexts, complaints = [], []

    def open_page(report, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        address = report.as_uri()
        page.on("request", lambda r: r.url.startswith(address) or complaints.append(r.url))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def opened(open_report, everything):
    """Opens the report of the paper's experiments."""
    return partial(open_report, everything.folder / "report.html")


def pixels(page):
    return page.evaluate("document.getElementById('space').toDataURL()")


def test_dragging_turns_the_view(opened):
    page = opened()
    canvas = page.locator("#space")
    canvas.scroll_into_view_if_needed()
    before, yaw = pixels(page), canvas.get_attribute("data-yaw")
    box = canvas.bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + 100, middle[1] + 20, steps=4)
    page.mouse.up()
    assert float(canvas.get_attribute("data-yaw")) == pytest.approx(float(yaw) + 1.0, abs=0.05)
    turned = pixels(page)
    assert turned != before
    page.mouse.move(*middle)  # no button: nothing turns
    assert pixels(page) == turned
    page.mouse.wheel(0, -300)
    page.wait_for_function("Number(document.getElementById('space').dataset.zoom) > 1.2")
    canvas.focus()
    page.keyboard.press("ArrowRight")
    assert float(canvas.get_attribute("data-yaw")) == pytest.approx(float(yaw) + 1.1, abs=0.05)


def test_playing_moves_from_the_observed_frames_to_the_horizon(opened):
    page = opened()
    assert page.locator("#step").text_content() == "10,000 steps ahead"
    page.locator("#play").click()
    page.wait_for_function("Number(document.getElementById('time').value) < 90")
    assert page.locator("#play").text_content() == "❚❚ pause"
    page.wait_for_function("Number(document.getElementById('time').value) > 200")
    page.locator("#play").click()
    assert page.locator("#play").text_content() == "▶ play"
    value = page.locator("#time").input_value()
    page.wait_for_timeout(200)
    assert page.locator("#time").input_value() == value


def test_models_and_windows_can_be_chosen(opened):
    page = opened()
    all_models = pixels(page)
    page.locator("#models input").first.uncheck()
    assert pixels(page) != all_models
    page.locator("#scene").select_option("3")
    assert pixels(page) != all_models


def test_a_click_on_a_head_sorts_numbers_as_numbers_and_again_the_other_way(opened):
    page = opened()
    table = page.locator("#table-baselines table")
    counts = table.locator("tbody tr td:nth-child(2)")
    head = table.locator("th", has_text="parameters")
    for direction in ("ascending", "descending"):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == direction
        found = [int(text.replace(",", "")) for text in counts.all_text_contents()]
        assert found == sorted(found, reverse=direction == "descending")
    published = table.locator("th", has_text="published")
    published.locator("button").click()
    cells = table.locator("tbody tr td:nth-child(3)").all_text_contents()
    assert cells[0] == "1.25e-10"
    assert cells[-1] == "–"  # what is not known comes last, whichever way


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_follows_the_systems_theme_and_can_be_switched(opened, scheme):
    page = opened(color_scheme=scheme)

    def lightness():
        text = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(c) for c in text.strip("rgb()").split(","))

    first = lightness()
    assert (first > 600) == (scheme == "light")
    page.locator("#theme").click()
    assert (lightness() > 600) != (scheme == "light")


def test_on_a_phone_the_page_is_as_wide_as_the_screen_and_tables_scroll(opened):
    page = opened(**PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    box = page.locator("#table-baselines .scroll")
    assert box.evaluate("e => e.scrollWidth > e.clientWidth")
    assert page.locator("#space").bounding_box()["height"] > 300


def test_curves_tell_their_numbers(opened):
    page = opened()
    panels = page.locator("#panels figure")
    assert panels.count() == 4
    dot = panels.first.locator("circle").first
    dot.dispatch_event("pointerenter")
    assert panels.first.locator(".told").text_content().startswith("SET: ")


# --- of a comparison ------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_comparison_begins_with_its_leaderboard(open_report, compared_by_command, scheme):
    page = open_report(compared_by_command.folder / "report.html", color_scheme=scheme)
    assert page.title() == "spacetime-en: Which model for charged?"
    assert page.locator("#title").text_content() == "Which model for charged?"
    assert page.locator("#what").text_content().startswith("Best, by validation error: ")
    sections = page.locator("main > section:visible")
    assert sections.nth(0).get_attribute("id") == "tables"
    table = page.locator("#table-leaderboard table")
    errors = table.locator("tbody tr td:nth-child(2)").all_text_contents()
    assert len(errors) == 4
    assert [float(error) for error in errors] == sorted(map(float, errors))
    head = table.locator("th", has_text="parameters")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"


def test_the_worst_windows_of_the_best_model_can_be_looked_at(open_report, compared_by_command):
    page = open_report(compared_by_command.folder / "report.html")
    page.locator("#space").scroll_into_view_if_needed()
    assert page.locator("#scene option").count() == 6
    first = pixels(page)
    page.locator("#scene").select_option("5")
    assert pixels(page) != first
    page.locator("#models input").first.uncheck()
    page.locator("#play").click()
    page.wait_for_function("document.getElementById('play').textContent.includes('pause')")
    dot = page.locator("#panel-learning_curves circle").first
    dot.dispatch_event("pointerenter")
    assert page.locator("#panel-learning_curves .told").text_content().startswith("egnn: ")


def test_on_a_phone_a_comparison_is_as_wide_as_the_screen(open_report, compared_by_command):
    page = open_report(compared_by_command.folder / "report.html", **PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    box = page.locator("#table-leaderboard .scroll")
    assert box.evaluate("e => e.scrollWidth > e.clientWidth")
