"""The page at "/", in Chromium: what it shows, what its buttons do, that nothing is markup, and that all can use it."""

import json
import re

import pytest
from support import browser, jobs
from support.processes import wait_until
from support.rest import Rest, closed_port

sync_api = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is missing: setup.sh")
if browser.chromium() is None:
    pytest.skip("chromium is missing: scripts/setup.sh installs it", allow_module_level=True)
expect = sync_api.expect
expect.set_options(timeout=60_000)  # builds may share the machine

HOSTILE = "<img src=x onerror=window.hacked=1>"
NEVER = 10**6
SERVICE_FLAGS = ["--allow-eval-command"]


@pytest.fixture(scope="module")
def chrome():
    with sync_api.sync_playwright() as playwright:
        program = browser.launch(playwright)
        yield program
        program.close()


@pytest.fixture(scope="module")
def work(module_service, distilld_session, teacher, teacher_folder, text_data, tmp_path_factory):
    """Two jobs that have succeeded, one that failed, and one that runs on and leaves the cores to the browser."""
    folder = tmp_path_factory.mktemp("page")
    rest = module_service.rest
    evaluated = {"/dataset/eval": str(text_data), "/training/eval_steps": 10, "/checkpoint/every_steps": 10}
    evaluated |= {"/eval/sample_prompts": [HOSTILE, "The old"], "/eval/sample_tokens": 4}
    made = {}
    for name, rate in (("slow rate", 5e-4), ("fast rate", 4e-3)):
        spec = jobs.distil_spec(text_data, folder / name, teacher.url, 40)
        made[name] = rest.submit(jobs.changed(spec, {"/name": name, "/training/learning_rate": rate, **evaluated}))
    for job in made.values():
        rest.wait_job(job)
    slow_url = distilld_session.teacher(teacher_folder, "--delay-ms", "200").url
    spec = jobs.distil_spec(text_data, folder / HOSTILE, slow_url, NEVER)
    judged = {"/eval/command": ["echo", json.dumps({"judged": {"step": 0.25}, HOSTILE: 1})], "/eval/every_steps": 20}
    made["running"] = rest.submit(jobs.changed(spec, {"/name": "running", "/checkpoint/every_steps": 20, **judged}))
    wait_until(lambda: rest.job(made["running"])["checkpoints"], "a checkpoint of the job that runs")
    broken = jobs.write_jsonl(folder / "broken.jsonl", [{"text": 1}])
    made["failed"] = rest.submit(jobs.changed(jobs.base_spec(broken, folder / "failed", 5), {"/name": "failed"}))
    nobody = jobs.distil_spec(text_data, folder / "alone", f"http://127.0.0.1:{closed_port()}", 5)
    made["alone"] = rest.submit(jobs.changed(nobody, {"/name": "alone", "/teacher/patience_secs": 0.1}))
    for name in ("failed", "alone"):
        rest.wait_job(made[name], ("failed",))
    return made


@pytest.fixture
def tab(chrome, module_service):
    """Makes tabs; no test may leave a complaint in one."""
    made = []

    def open_tab(size=None, scheme="light", **options):
        made.append(browser.Tab(chrome, module_service.url, size, scheme, **options))
        return made[-1]

    yield open_tab
    for one in made:
        one.close()
        assert one.complaints == []


def row_of(page, job):
    return page.locator(f'[data-job="{job}"]')


def test_jobs_are_listed_and_filtered(tab, work):
    page = tab().go()
    rows = page.locator(".job")
    expect(rows).to_have_count(len(work))
    expect(row_of(page, work["slow rate"])).to_contain_text("succeeded")
    expect(row_of(page, work["slow rate"])).to_contain_text("40 of 40 steps")
    expect(row_of(page, work["failed"])).to_contain_text("broken.jsonl")
    steps = row_of(page, work["running"]).locator(".job-progress .hint")
    before = steps.inner_text()
    expect(steps).not_to_have_text(before)  # by itself
    page.get_by_label("State").select_option("failed")
    expect(rows).to_have_count(2)
    assert page.url.endswith("#/?state=failed")
    page.get_by_label("State").select_option("")
    expect(rows).to_have_count(len(work))
    page.get_by_label("Name", exact=True).fill("fast rate")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("fast rate")
    page.get_by_label("Name", exact=True).fill("nobody")
    expect(page.get_by_text("No job matches.")).to_be_visible()


def test_a_running_job_is_shown_live(tab, work):
    page = tab().go(f"#/jobs/{work['running']}")
    expect(page.locator("h1")).to_have_text("running")
    expect(page.locator(".job-head .state")).to_contain_text("running")
    done = page.locator(".job-bar .hint")
    expect(done).to_contain_text(re.compile(r"step [\d,]+ of 1,000,000"))
    before = done.inner_text()
    expect(done).not_to_have_text(before)
    # The bottleneck has a name and a frame, each stage its state in words.
    expect(page.locator(".stage-box.bottleneck")).to_have_count(1)
    student = page.locator('[data-stage="student"]')
    expect(student).to_contain_text(re.compile(r"\d %\s*(busy|waits for (input|output))"))
    assert student.get_attribute("data-state") in ("busy", "input", "output")
    expect(page.get_by_text(re.compile(r"Over the last \d"))).to_be_visible()
    endpoints = page.locator('[data-part="endpoints"]')
    expect(endpoints.locator("tbody tr")).to_have_count(1)
    expect(endpoints).to_contain_text("closed")
    expect(endpoints.locator("tbody td").nth(1)).to_have_text(re.compile(r"\d (ms|s)$"))
    # The curves grow: their last step does.
    readout = page.locator(".readout").first
    expect(readout).to_contain_text("Last (step")
    curve = readout.inner_text()
    expect(readout).not_to_have_text(curve)
    drawn = page.locator(".chart canvas").first.evaluate(
        "canvas => new Set(canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data).size"
    )
    assert drawn > 10, "the canvas is not empty"
    expect(page.locator('[data-part="checkpoints"] tbody tr').first).to_contain_text("step-")
    events = page.locator(".events")
    expect(events).to_contain_text("checkpoint of step")
    older = page.get_by_role("button", name="Older events")
    while older.is_visible():
        older.click()
        expect(older).to_be_enabled()
    expect(events.locator("li").last).to_contain_text("job queued")
    numbers = events.locator("li").evaluate_all("lines => lines.map(line => line.textContent)")
    assert len(numbers) == len(set(numbers)), "none twice"
    page.get_by_text("Log of the workers").click()
    expect(page.locator('[data-part="log"] pre')).to_contain_text("a worker is started")
    page.locator("#figure").select_option(label="eval.command: judged/step")
    expect(page.locator(".readout").nth(1)).to_contain_text(re.compile("eval.command: judged/step.*0.25"))


def test_a_job_that_has_succeeded_hands_out_what_it_has_made(tab, work, module_service):
    job = module_service.rest.job(work["slow rate"])
    window = tab(accept_downloads=True)
    page = window.go(f"#/jobs/{job['id']}")
    result = page.locator('[data-part="result"]')
    expect(result).to_contain_text(job["output"])
    with_key = []
    page.on("request", lambda request: with_key.append(request.headers.get("authorization")))
    for key in (None, "dk_made_up"):
        if key:
            page.evaluate("key => sessionStorage.setItem('distilld.key', key)", key)
        with page.expect_download() as taken:
            result.get_by_role("link", name="config.json", exact=True).click()
        assert taken.value.suggested_filename == "config.json"
        with open(taken.value.path(), encoding="utf-8") as file:
            assert json.load(file)["model_type"] == "llama"
    assert "Bearer dk_made_up" in with_key
    whole = result.get_by_role("link", name="everything, as a tar")
    expect(whole).to_have_attribute("href", f"/v1/jobs/{job['id']}/artifacts")
    samples = page.locator('[data-part="samples"]')
    expect(samples).to_contain_text("at step 40")
    expect(samples.locator("dt").first).to_have_text(HOSTILE)
    assert len(samples.locator("dd").all_inner_texts()) == 2
    assert page.evaluate("window.hacked") is None
    facts = page.locator(".facts")
    expect(facts).to_contain_text("training loss (KD), nats/token")
    expect(facts).to_contain_text("held-out cross entropy, nats/token")
    expect(page.locator(".chart").first).to_have_attribute("aria-label", re.compile("nats per token.*KD"))
    expect(page.locator(".events time").first).to_have_text(re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"))
    expect(page.locator(".events")).to_contain_text("job queued")


def test_no_words_of_the_stages_overlap(tab, work):
    page = tab().go(f"#/jobs/{work['running']}")
    expect(page.get_by_text(re.compile(r"Over the last \d"))).to_be_visible()
    for width in (browser.DESKTOP, browser.PHONE):
        page.set_viewport_size(width)
        gaps = page.evaluate("""() => [...document.querySelectorAll(".stages g")].map(box => {
            const edge = (name, end) => box.querySelector(name)?.getBoundingClientRect()[end];
            // As if it were always busy: the widest share.
            const share = box.querySelector(".stage-share");
            if (share) share.textContent = "100 %";
            return share ? edge(".stage-share", "left") - edge(".stage-name", "right") : 1;
        })""")
        assert len(gaps) > 5 and min(gaps) > 0, gaps


def test_a_job_without_its_teacher_says_so_at_the_top(tab, work):
    page = tab().go(f"#/jobs/{work['alone']}")
    reason = page.locator(".job-head .reason.trouble")
    expect(reason).to_contain_text("teacher")
    expect(page.locator('[data-part="endpoints"]')).to_contain_text("the reason is at the top")
    assert page.get_by_text("No teacher is asked").count() == 0
    # Cards that have nothing to show are not between the reason and the events.
    expect(page.locator(".stages")).to_be_hidden()
    expect(page.locator(".events li").first).to_be_visible()


def test_nothing_that_the_service_says_becomes_markup(tab, work, module_service):
    """A folder with a hostile name is real; a name of a job like that no service would take, so it is made up here."""
    window = tab()
    job = module_service.rest.job(work["running"])

    def lies(route):
        changed = {**job, "name": HOSTILE, "status_reason": {"code": "io", "message": HOSTILE, "since": None}}
        one = {"object": "list", "data": [changed], "has_more": False, "first_id": job["id"], "last_id": job["id"]}
        route.fulfill(json=one if "?" in route.request.url else changed)

    window.page.route(re.compile(r"/v1/jobs(\?.*)?$|/v1/jobs/[^/]+$"), lies)
    page = window.go()
    expect(page.locator(".job")).to_contain_text(HOSTILE)
    page = window.go(f"#/jobs/{job['id']}")
    expect(page.locator("h1")).to_have_text(HOSTILE)
    expect(page.locator('[data-part="checkpoints"]')).to_contain_text(HOSTILE)
    expect(page.locator(".events")).to_contain_text(HOSTILE)
    page = window.go(f"#/compare?a={job['id']}&b={job['id']}")
    expect(page.locator("#job-a")).to_contain_text(HOSTILE)
    expect(page.locator('[data-part="comparison"]')).to_contain_text(HOSTILE)
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    # And were it markup, the policy would not let it run: the test's own script is refused.
    with pytest.raises(sync_api.Error, match=r"TrustedHTML|Content Security Policy"):
        page.evaluate("html => { document.body.innerHTML = html }", HOSTILE)
    window.complaints.clear()


def test_buttons_do_what_they_say(tab, work, module_service, text_data, tmp_path):
    rest = module_service.rest
    job = rest.submit(jobs.changed(jobs.base_spec(text_data, tmp_path / "out", NEVER), {"/name": "stop me"}))
    wait_until(lambda: (rest.job(job)["progress"] or {}).get("step"), "a step")
    window = tab()
    page = window.go(f"#/jobs/{job}")
    expect(page.locator('[data-verb="checkpoint"], [data-verb="pause"]')).to_have_count(2)
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.get_by_role("button", name="Cancel").click()
    assert rest.job(job)["state"] == "running", "who says no is not asked again"
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".job-head .state")).to_contain_text("cancelled", timeout=60_000)
    expect(page.locator(".job-head .reason")).to_contain_text("cancelled_by_user")
    expect(page.locator(".events")).to_contain_text("job cancelled")
    assert rest.job(job)["state"] == "cancelled"
    page.get_by_role("button", name="Delete").click()
    page.wait_for_url(re.compile(r"#/$"))
    assert rest.get(f"/v1/jobs/{job}").status == 404
    page = window.go(f"#/jobs/{job}")
    expect(page.get_by_role("alert")).to_contain_text("there is no job")


def test_a_refusal_is_shown(tab, work):
    window = tab()
    detail = {"type": "about:blank", "title": "Conflict", "status": 409, "detail": "the job has just ended"}
    window.page.route(
        re.compile(r"/pause$"),
        lambda route: route.fulfill(status=409, content_type="application/problem+json", body=json.dumps(detail)),
    )
    page = window.go(f"#/jobs/{work['running']}")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("alert")).to_have_text("Pause: the job has just ended")


def test_a_job_is_checked_as_it_is_typed_and_submitted(tab, module_service, text_data, tmp_path):
    page = tab().go("#/submit")
    expect(page.locator("#verdict")).to_have_text("Nothing is filled in yet.")

    def field(pointer):
        return page.locator(f'[data-pointer="{pointer}"]')

    def wrong(pointer):
        return page.locator(".field", has=field(pointer)).locator(".wrong")

    for pointer in ("/output", "/student/model", "/dataset/train", "/training/max_steps"):
        expect(page.locator(".field", has=field(pointer)).locator("label")).to_contain_text("(required")
    assert page.locator(".field", has=field("/name")).locator("label").inner_text() == "name"
    field("/name").fill("from the page")
    field("/student/init").select_option(label="random")
    field("/student/config").fill(json.dumps(jobs.llama_config(32)))
    field("/dataset/train").fill(str(tmp_path / "missing.jsonl"))
    field("/dataset/sequence_length").fill("0")
    field("/training/max_steps").fill("many")
    field("/output").fill(str(tmp_path / "student"))
    # The service's own words, at the field that each is about, without a click.
    expect(wrong("/dataset/sequence_length")).to_contain_text("outside")
    expect(wrong("/training/max_steps")).not_to_be_empty()
    assert field("/training/max_steps").get_attribute("aria-invalid") == "true"
    expect(page.locator("#verdict")).to_contain_text("to fix")
    field("/dataset/sequence_length").fill("24")
    field("/training/max_steps").fill("5")
    expect(wrong("/dataset/train")).to_contain_text("missing.jsonl")
    page.get_by_role("button", name="Submit the job").click()
    expect(field("/dataset/train")).to_be_focused()
    assert module_service.rest.get("/v1/jobs?name=from+the+page").json["data"] == []
    field("/dataset/train").fill(str(text_data))
    expect(page.locator("#verdict")).to_contain_text("accepts this job")
    expect(wrong("/dataset/train")).to_be_empty()
    # The same as text; what the form does not show can be added there.
    page.get_by_label("JSON", exact=True).check()
    spec = json.loads(page.locator("#spec-text").input_value())
    assert spec["training"] == {"max_steps": 5}
    spec["training"]["threads"] = 1
    page.locator("#spec-text").fill(json.dumps(spec) + "}")
    expect(page.locator("#verdict")).to_contain_text("to fix")
    page.locator("#spec-text").fill(json.dumps(spec))
    expect(page.locator("#verdict")).to_contain_text("accepts this job")
    page.reload()
    expect(field("/training/max_steps")).to_have_value("5")  # what was typed is still there
    page.get_by_role("button", name="Submit the job").click()
    page.wait_for_url(re.compile(r"#/jobs/job-"))
    expect(page.locator(".job-head .state")).to_contain_text("succeeded")
    made = module_service.rest.get("/v1/jobs?name=from+the+page").json["data"]
    assert [job["state"] for job in made] == ["succeeded"]
    # Another one like it.
    page.get_by_role("link", name="Submit again").click()
    expect(field("/training/max_steps")).to_have_value("5")
    expect(field("/name")).to_have_value("from the page")


def test_two_jobs_are_compared(tab, work):
    page = tab().go()
    button = page.locator("button", has_text="Compare")
    expect(button).to_be_disabled()
    for name in ("slow rate", "fast rate"):
        row_of(page, work[name]).get_by_role("checkbox").check()
    button.click()
    result = page.locator('[data-part="comparison"]')
    expect(result.locator(".chart canvas").first).to_be_visible()
    changes = result.locator("section", has=page.locator("#changes-title"))
    pointers = changes.locator("tbody code").all_inner_texts()
    assert pointers == ["/name", "/output", "/training/learning_rate"]
    expect(changes.locator("tbody tr").nth(2)).to_contain_text("0.0005")
    expect(changes.locator("tbody tr").nth(2)).to_contain_text("0.004")
    figures = result.locator("section", has=page.locator("#figures-title"))
    expect(figures.locator("tr", has_text="Held-out loss").first).to_contain_text(re.compile(r"\d\.\d"))
    label = result.locator(".chart").first.get_attribute("aria-label")
    assert "A: slow rate" in label
    assert "B: fast rate" in label


def test_a_key_is_asked_for_and_sent(tab, work):
    window = tab()
    seen = []

    def guard(route):
        sent = route.request.headers.get("authorization")
        seen.append((route.request.url, sent))
        if sent == "Bearer dk_good":
            route.continue_()
        else:
            problem = {"type": "about:blank", "title": "Unauthorized", "status": 401, "detail": "a key is needed"}
            route.fulfill(status=401, content_type="application/problem+json", body=json.dumps(problem))

    window.page.route("**/v1/**", guard)
    page = window.go(f"#/jobs/{work['running']}")
    expect(page.locator("#key")).to_contain_text("distilld keys add")
    page.locator("#key-input").fill("dk_bad")
    page.get_by_role("button", name="Use").click()
    expect(page.locator("#key")).to_contain_text("does not accept this key")
    page.locator("#key-input").fill("dk_good")
    page.get_by_role("button", name="Use").click()
    expect(page.locator("h1")).to_have_text("running")
    expect(page.locator(".events")).to_contain_text("checkpoint of step")
    for _ in range(600):
        streams = [sent for url, sent in seen if url.endswith("/events")]
        if streams:
            break
        page.wait_for_timeout(100)
    assert "Bearer dk_good" in streams, "the stream of events has the key too"
    assert "dk_good" not in page.content()
    assert page.evaluate("localStorage.length") == 0
    assert window.context.cookies() == []


def test_a_service_that_goes_and_comes_back(tab, work):
    window = tab()
    page = window.go(f"#/jobs/{work['running']}")
    done = page.locator(".job-bar .hint")
    expect(done).to_contain_text("step")
    window.context.set_offline(True)
    expect(page.locator("#link")).to_contain_text("cannot be reached")
    window.context.set_offline(False)
    expect(page.locator("#link")).to_be_empty()
    before = done.inner_text()
    expect(done).not_to_have_text(before)
    readout = page.locator(".readout").first
    curve = readout.inner_text()
    expect(readout).not_to_have_text(curve)
    window.complaints.clear()


def test_the_keyboard_is_enough(tab, work):
    page = tab().go()
    expect(page.locator(".job")).not_to_have_count(0)
    page.keyboard.press("Tab")
    skip = page.locator(".skip")
    expect(skip).to_be_focused()
    assert skip.evaluate("link => link.getBoundingClientRect().top") >= 0, "what has the focus can be seen"
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    link = row_of(page, work["running"]).get_by_role("link")
    for _ in range(30):
        page.keyboard.press("Tab")
        if link.evaluate("link => link === document.activeElement"):
            break
    expect(link).to_be_focused()
    page.wait_for_timeout(2500)  # the list is shown anew meanwhile
    expect(link).to_be_focused()
    outline = link.evaluate("link => getComputedStyle(link).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text("running")
    expect(page.locator("#main")).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", ["desktop", "phone"])
def test_every_view_is_accessible(tab, work, scheme, size):
    """Nothing serious for axe-core, and no scrolling to the side; the pictures are there to be looked at."""
    window, a, b = tab(getattr(browser, size.upper()), scheme), work["slow rate"], work["fast rate"]
    views = {
        "jobs": ("#/", lambda page: page.locator(".job").first),
        "job": (f"#/jobs/{work['running']}", lambda page: page.get_by_text(re.compile(r"Over the last \d"))),
        "ended": (f"#/jobs/{a}", lambda page: page.locator(".events li").first),
        "failed": (f"#/jobs/{work['failed']}", lambda page: page.locator(".events li").first),
        "compare": (f"#/compare?a={a}&b={b}", lambda page: page.locator(".chart canvas").first),
        "nodes": ("#/nodes", lambda page: page.get_by_role("link", name=work["running"])),
        "submit": ("#/submit", lambda page: page.locator(".field").first),
    }
    for name, (address, ready) in views.items():
        page = window.go(address)
        expect(ready(page)).to_be_visible()
        if name == "submit":
            page.locator('[data-pointer="/training/max_steps"]').fill("many")
            expect(page.locator('[aria-invalid="true"]').first).to_be_visible()
            page.evaluate("sessionStorage.clear()")
        if name == "jobs":
            page.get_by_role("button", name="Key").click()
        window.shot(f"{name}-{size}-{scheme}")
        assert window.violations() == [], name
        assert page.evaluate("document.documentElement.scrollWidth") <= window.page.viewport_size["width"], name


def test_an_empty_service_says_what_to_do(chrome, distilld, tmp_path):
    service = distilld.service(tmp_path / "service")
    assert Rest(service.url).get("/v1/jobs").json["data"] == []
    window = browser.Tab(chrome, service.url)
    page = window.go()
    expect(page.get_by_text("There are no jobs yet.")).to_be_visible()
    assert window.violations() == []
    window.close()
    assert window.complaints == []
