"""Chromium, driven by Playwright, for the tests of the page and the pictures in its documentation."""

import os
import pathlib
import shutil

ROOT = pathlib.Path(__file__).resolve().parents[3]
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
SHOTS = ROOT / "build" / "test-results" / "screenshots"

DESKTOP = {"width": 1200, "height": 800}
PHONE = {"width": 360, "height": 740}


def chromium():
    """The program, or None: setup.sh installs the package of that name."""
    return os.environ.get("DISTILLD_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def launch(playwright):
    # Root, as in a container, has no sandbox; what is shown is our own page.
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    return playwright.chromium.launch(executable_path=chromium(), args=[*flags, "--disable-gpu"])


class Tab:
    """A page of the service in a window of its own. What it complains about is kept in `complaints`."""

    def __init__(self, browser, url, size=None, scheme="light", **options):
        self.url = url
        self.context = browser.new_context(
            viewport=size or DESKTOP, color_scheme=scheme, reduced_motion="reduce", **options
        )
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.complaints = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._heard)

    def _heard(self, message):
        # That a request was refused stands in the page; the browser says it here once more.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def go(self, address="#/"):
        self.page.goto(f"{self.url}/{address}")
        self.page.wait_for_selector("main h1")
        return self.page

    def shot(self, name, folder=SHOTS, full=True):
        folder.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=folder / f"{name}.png", full_page=full)

    def violations(self):
        """What axe-core finds that is serious or critical: [(rule, first element)]."""
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("async () => (await axe.run()).violations")
        return [
            (one["id"], one["nodes"][0]["html"], one["nodes"][0].get("failureSummary"))
            for one in found
            if one["impact"] in ("serious", "critical")
        ]

    def close(self):
        self.context.close()
