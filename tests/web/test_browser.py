"""Pages in a real browser with a real yard behind them.

Nothing cheaper would do: what is shown is that scripts, streams, forms and cookies work together.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..control.live import LiveYard, command_job
from .conftest import token_of

playwright = pytest.importorskip(
    "playwright.sync_api", reason="the driver of browsers is missing: modelyard[dev]"
)
expect = playwright.expect
expect.set_options(timeout=60_000)
#: A job that trains to its end, on a machine that does much else.
TRAINED_MS = 200_000

#: Only what the test asks for: no service of the browser's maker is called.
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
#: enough that the page is open long before the last one
STEPS = 2_500
TRAINING = f"""
name: small-gpt
devices: 1
tenant: red
model: gpt
batch: 4
steps: {STEPS}
train:
  data: data
  sequence: 32
  micro_batch: 4
  model_options: {{layers: 2, hidden: 32, heads: 2, longest: 32}}
  checkpoints: {{every: 1000}}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright.Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no browser is installed: 'apt-get install chromium', or as root 'make test'")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: playwright.Browser) -> Iterator[playwright.Page]:
    """A new browser's page; what it complains about fails the test."""
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        page = context.new_page()
        page.set_default_timeout(60_000)
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("console", lambda one: complaints.append(f"{one.type}: {one.text}"))
        page.complaints = complaints
        yield page
        assert [one for one in complaints if one.startswith(("error", "warning"))] == []


def log_in(page: playwright.Page, address: str, token: str) -> None:
    page.goto(f"{address}/login")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()


def admin_token(yard: LiveYard) -> str:
    return (yard.folder / "admin.token").read_text().strip()


@pytest.fixture(scope="module")
def data_there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text that a model can be trained on."""
    from click.testing import CliRunner

    from modelyard.cli.main import yard as program

    folder = tmp_path_factory.mktemp("text")
    text = folder / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 400)
    words = ["data", "prepare", str(text), "--out", str(folder / "data"), "--tokenizer", "bytes"]
    done = CliRunner().invoke(program, words)
    assert done.exit_code == 0, done.output
    return folder


def test_a_job_is_watched_from_its_start_to_its_end(
    yard: LiveYard, address: str, page: playwright.Page, data_there: Path
) -> None:
    pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")
    log_in(page, address, "yard_wrong")
    expect(page.get_by_role("alert")).to_contain_text("This token is not valid")
    # The browser itself says that the answer was 401; nobody else has anything to say.
    page.complaints.clear()
    page.get_by_label("Token").fill(admin_token(yard))
    page.get_by_role("button", name="Log in").click()
    expect(page.locator(".live")).to_contain_text("Live")

    job = yard.client.submit_text(TRAINING, folder=str(data_there))["id"]
    expect(page.locator(f'.map a[data-job="{job}"]')).to_be_visible()
    page.locator("[data-live=running]").get_by_role("link", name="small-gpt").click()
    expect(page.locator("[data-chart=loss] .line")).to_be_attached()
    loss = page.locator("[data-chart=loss] output")
    expect(loss).to_contain_text(re.compile("step [0-9]"))
    before = loss.inner_text()
    expect(loss).not_to_have_text(before)
    expect(page.locator("#log")).to_contain_text("loss")
    expect(page.locator(".fact-state .state")).to_have_text("succeeded", timeout=TRAINED_MS)
    expect(loss).to_contain_text(re.compile(f"step {STEPS:,}|step {STEPS}"))
    expect(page.locator("[data-live=checkpoints]")).to_contain_text("complete")
    expect(page.locator("[data-live=lines]")).to_contain_text("submitted")
    expect(page.get_by_role("button", name="Cancel…")).to_have_count(0)


def test_a_waiting_job_says_why_and_jobs_are_cancelled(
    yard: LiveYard, address: str, page: playwright.Page
) -> None:
    full = [yard.client.submit_text(command_job("full", "sleep 600", devices=2)) for _ in "ab"]
    waits = yard.client.submit_text(command_job("waits", "sleep 600"))["id"]
    log_in(page, address, admin_token(yard))
    page.goto(f"{address}/jobs?state=waiting")
    page.get_by_role("link", name="waits").click()
    expect(page.locator("[data-live=why]")).to_contain_text("Job waits has waited")
    expect(page.locator("[data-live=why]")).to_contain_text("none are free")

    page.goto(f"{address}/jobs/{full[0]['id']}")
    page.get_by_role("button", name="Cancel…").click()
    question = page.get_by_role("dialog", name="Cancel full")
    expect(question).to_be_visible()
    page.keyboard.press("Escape")
    expect(question).to_be_hidden()
    page.get_by_role("button", name="Cancel…").click()
    question.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="It ends")).to_be_visible()
    expect(page.locator(".fact-state .state")).to_have_text("cancelled")

    page.goto(f"{address}/jobs/{waits}")
    expect(page.locator(".fact-state .state")).to_have_text("running")
    page.get_by_role("button", name="Scale…").click()
    expect(page.get_by_role("dialog", name="Scale waits")).to_be_visible()
    page.get_by_label("Fewest devices").fill("3")
    page.get_by_label("Most devices").fill("2")
    page.get_by_role("button", name="Scale", exact=True).click()
    expect(page.get_by_role("alert").first).to_contain_text("devices")
    page.complaints.clear()  # The browser notes that the form was refused.
    page.get_by_role("button", name="Priority…").click()
    page.get_by_role("spinbutton", name="Priority").fill("3")
    page.get_by_role("button", name="Priority", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="another priority")).to_be_visible()
    assert yard.client.job(waits)["priority"] == 3
    for job in (waits, full[1]["id"]):
        yard.client.cancel(job)


def test_what_belongs_to_others_is_refused(
    yard: LiveYard, address: str, page: playwright.Page
) -> None:
    job = yard.client.submit_text(command_job("not-yours", "sleep 600"))["id"]
    own = yard.client.submit_text(command_job("yours", "sleep 600", more="tenant: red\n"))["id"]
    log_in(page, address, token_of(yard, tenant="red", role="viewer"))
    expect(page.locator(".map a[data-job]")).to_have_count(1)
    page.goto(f"{address}/jobs/{own}")
    expect(page.locator("h1")).to_contain_text("yours")
    expect(page.get_by_role("button", name="Cancel…")).to_have_count(0)
    for asked, status in ((job, 404), (own, 403)):
        answer = page.evaluate(
            "path => fetch(path, {method: 'POST'}).then(answer => answer.status)",
            f"/jobs/{asked}/cancel",
        )
        assert answer == status
    page.goto(f"{address}/jobs/{job}")
    expect(page.locator("h1")).to_contain_text("There is no job")
    page.complaints.clear()  # The browser notes every refusal.
    for one in (job, own):
        assert yard.client.job(one)["state"] != "cancelled"
        yard.client.cancel(one)


def test_a_job_is_planned_edited_and_submitted(
    yard: LiveYard, address: str, page: playwright.Page, data_there: Path
) -> None:
    pytest.importorskip("torch", reason="training needs torch: install the extra 'train'")
    log_in(page, address, token_of(yard, tenant="red"))
    page.get_by_role("link", name="Plan", exact=True).click()
    page.get_by_label("Model", exact=True).fill("gpt2")
    page.get_by_label("Devices", exact=True).fill("8xA100")
    page.get_by_label("Tokens", exact=True).fill("many")
    page.get_by_role("button", name="Plan", exact=True).click()
    expect(page.locator("#p-tokens")).to_be_visible()
    page.get_by_label("Tokens", exact=True).fill("100M")
    page.get_by_role("button", name="Plan", exact=True).click()
    expect(page.locator("#answer")).to_contain_text("The best plan")
    expect(page.locator("#answer svg circle").first).to_be_attached()
    page.get_by_role("link", name="Make a job of it…").click()
    expect(page.get_by_role("alert")).to_contain_text("'train.data[0].folder' is empty")
    file = page.get_by_label("Job file")
    file.fill(file.input_value().replace('data: ""', f"data: {data_there / 'data'}"))
    page.get_by_role("button", name="Check again").click()
    # The plan is for devices that this yard does not have, and that is said before it is submitted.
    expect(page.get_by_role("alert")).to_contain_text("No node has A100")

    page.goto(f"{address}/plan")
    page.locator("#j-data").fill(str(data_there / "data"))
    page.locator("#j-name").fill("planned")
    page.locator("#j-steps").fill("20")
    page.get_by_label("Most devices").fill("1")
    page.get_by_role("button", name="Write its file").click()
    expect(page.locator(".outlook")).to_contain_text("Starts")
    written = file.input_value()
    file.fill(written.replace('"planned"', '"planned-and-edited"'))
    page.get_by_role("button", name="Check again").click()
    expect(file).to_have_value(re.compile("planned-and-edited"))
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("h1")).to_contain_text("planned-and-edited")
    expect(page.locator(".fact-state .state")).to_have_text("succeeded", timeout=TRAINED_MS)
    expect(page.locator("[data-chart=loss] output")).to_contain_text("step 20")


def test_a_trace_is_uploaded_and_policies_are_compared(
    yard: LiveYard, address: str, page: playwright.Page, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.csv"
    rows = (f"j{number},{60 * number},{1 + number % 4},{600 + 37 * number}" for number in range(40))
    trace.write_text("\n".join(["id,submitted,devices,duration", *rows]))
    log_in(page, address, token_of(yard, tenant="red"))
    page.get_by_role("link", name="Compare", exact=True).click()
    page.locator("input[name=source][value=trace]").check()
    page.get_by_label("A trace", exact=True).set_input_files(trace)
    expect(page.get_by_role("status").filter(has_text="trace.csv")).to_contain_text("is there")
    page.get_by_label("Cluster", exact=True).fill("1x4")
    for box in page.locator(".policies input").all():
        box.set_checked(box.get_attribute("name") in ("policy-fifo", "policy-srtf"))
    page.get_by_role("button", name="Compare").click()
    expect(page.locator(".outcome-head")).to_contain_text("finishes jobs in")
    expect(page.locator(".compare-table tbody tr")).to_have_count(2)
    expect(page.get_by_role("img", name=re.compile("Share of jobs done"))).to_be_visible()
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width


@pytest.mark.slow
def test_a_lost_yard_is_told_and_caught_up_with(
    yard: LiveYard, address: str, page: playwright.Page
) -> None:
    log_in(page, address, admin_token(yard))
    page.goto(f"{address}/jobs?q=after")
    expect(page.locator(".live")).to_contain_text("Live")
    expect(page.locator(".lost")).to_be_hidden()
    yard.kill()
    expect(page.locator(".lost")).to_contain_text("Reconnecting")
    yard.start()
    expect(page.locator(".lost")).to_be_hidden()
    expect(page.locator(".live")).to_contain_text("Live")
    job = yard.client.submit_text(command_job("after", "true"))["id"]
    expect(page.locator(f"#job-{job} .state")).to_have_text("succeeded")
    # The browser notes that nobody answered; nothing else went wrong.
    page.complaints[:] = [one for one in page.complaints if "Failed to load" not in one]


@pytest.mark.slow
def test_the_keyboard_and_a_phone(yard: LiveYard, address: str, page: playwright.Page) -> None:
    jobs = [yard.client.submit_text(command_job(name, "sleep 600"))["id"] for name in ("a1", "b2")]
    log_in(page, address, admin_token(yard))
    for job in jobs:
        expect(page.locator(f'.map a[data-job="{job}"]')).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the page")).to_be_focused()
    page.keyboard.press("Enter")
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.locator(".map a:focus").count():
            break
    first = page.locator(".map a:focus").get_attribute("data-job")
    expect(page.locator(".tip")).to_be_visible()
    page.keyboard.press("ArrowRight")
    second = page.locator(".map a:focus").get_attribute("data-job")
    assert {first, second} == set(jobs)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/jobs/{second}"))

    page.set_viewport_size({"width": 360, "height": 740})
    others = ("/", "/?by=tenant", "/jobs", "/time", "/time?by=device", "/plan", "/compare")
    for path in (*others, f"/jobs/{first}"):
        page.goto(address + path)
        expect(page.locator(".live")).to_contain_text("Live")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    page.get_by_role("button", name="Cancel…").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Colours: Dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_focused()
    for job in jobs:
        yard.client.cancel(job)


@pytest.mark.slow
def test_pages_are_readable_without_scripts(
    yard: LiveYard, address: str, browser: playwright.Browser
) -> None:
    job = yard.client.submit_text(command_job("plain", "echo said; sleep 600"))["id"]
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        log_in(page, address, admin_token(yard))
        page.get_by_role("link", name="Jobs", exact=True).click()
        page.get_by_label("Search jobs").fill("plain")
        page.get_by_role("button", name="Search").click()
        expect(page.locator("tbody tr")).to_have_count(1)
        page.get_by_role("link", name="plain").click()
        page.get_by_role("button", name="Cancel…").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel", exact=True).click()
        expect(page.get_by_role("status")).to_contain_text("It ends")
        page.get_by_role("link", name="Time", exact=True).click()
        expect(page.get_by_role("img", name="Who had devices when")).to_be_visible()
        page.get_by_role("link", name="Compare", exact=True).click()
        expect(page.get_by_role("button", name="Compare")).to_be_visible()
    assert yard.client.wait(job, seconds=60)["state"] == "cancelled"
