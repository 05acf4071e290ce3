"""Takes the pictures of the dashboard in docs/pictures: a real yard, real jobs, a real browser.

    python scripts/screenshots.py

It needs Chromium and the extra `dev`, and takes two minutes. Commands stand in for long training
runs, so that a laptop can fill 64 devices; the job whose page is shown really trains.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from modelyard import Client
from modelyard.errors import YardError

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
CLUSTER = """
name: yard
links:
  {inside_node: 900 GB/s, across_nodes: 400 Gbit/s, across_racks: 100 GB/s, across_pods: 50 GB/s}
nodes:
  - {name: a-, count: 4, device: H100, devices: 8, nodes_per_rack: 2, pod: a}
  - {name: b-, count: 4, device: H100, devices: 8, nodes_per_rack: 2, pod: b}
"""
TENANTS = """
tenants:
  - {name: research, guaranteed: 24, weight: 2}
  - {name: product, guaranteed: 24, weight: 2}
  - {name: interns, maximum: 16}
"""
TRAINING = """
name: small-gpt
tenant: research
devices: {min: 1, max: 2}
priority: 5
model: gpt
batch: 8
steps: 4000
train:
  data: data
  sequence: 64
  micro_batch: 4
  model_options: {layers: 2, hidden: 64, heads: 2, longest: 64}
  optimizer: {learning_rate: 2.0e-3, warmup: 20}
  checkpoints: {every: 200}
"""
WORDS = ("pretrain", "finetune", "ablation", "distil", "sweep", "evaluate", "continue", "probe")
JOBS = 34
#: so that curves and bars have something to show
SECONDS = 75.0


def main() -> None:
    argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0]).parse_args()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        os.environ["YARD_FOLDER"] = str(folder / "state")
        (folder / "cluster.yaml").write_text(CLUSTER)
        (folder / "tenants.yaml").write_text(TENANTS)
        words = ["up", "--cluster", "cluster.yaml", "--tenants", "tenants.yaml", "--round", "2s"]
        yard(folder, *words)
        try:
            client = Client()
            job = fill(folder, client)
            time.sleep(SECONDS)
            take(str(client.status()["leader"]), (folder / "state" / "admin.token"), job)
        finally:
            left = [str(one["id"]) for one in Client().jobs(most=1000)["jobs"]]
            for one in left:
                # It may have ended by itself meanwhile.
                with contextlib.suppress(YardError):
                    Client().cancel(one)
            for one in left:
                Client().wait(one, seconds=60)
            yard(folder, "down")


def yard(folder: Path, *words: str) -> None:
    subprocess.run([sys.executable, "-m", "modelyard", *words], cwd=folder, check=True)


def fill(folder: Path, client: Client) -> str:
    """Give the yard jobs of all sizes; the id of the one that trains."""
    shutil.copy(ROOT / "examples" / "sonnets.txt", folder)
    yard(folder, "data", "prepare", "sonnets.txt", "--out", "data", "--tokenizer", "bytes")
    (folder / "train.yaml").write_text(TRAINING)
    training = str(client.submit(folder / "train.yaml")["id"])
    luck = random.Random(5)
    for number in range(JOBS):
        tenant = luck.choice(("research", "product", "interns"))
        devices = luck.choice((1, 2, 2, 4, 4, 8, 8, 16))
        seconds = luck.choice((20, 40, 90, 200, 400, 900))
        client.submit_text(
            f"name: {luck.choice(WORDS)}-{number}\ntenant: {tenant}\ndevices: {devices}\n"
            f"duration: {seconds}s\npriority: {luck.choice((0, 0, 1))}\n"
            f"command: [sleep, '{seconds}']\n"
        )
    return training


def take(address: str, token: Path, job: str) -> None:
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    if browser_path is None:
        raise SystemExit("error: no browser is installed. Fix: apt-get install chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path, args=list(OPTIONS))
        page = browser.new_page(viewport={"width": 1360, "height": 860})
        page.goto(f"{address}/login")
        page.fill("input[name=token]", token.read_text().strip())
        page.click("main button")
        # While somebody watches, the yard looks ahead: pictures show what it foresees.
        page.wait_for_timeout(12_000)
        shot(page, f"{address}/", "cluster")
        shot(page, f"{address}/jobs/{job}", "job", high=1000)
        shot(page, f"{address}/time?window=15m", "time", high=1000)
        page.emulate_media(color_scheme="dark")
        shot(page, f"{address}/", "cluster-dark")
        plan = f"{address}/plan?model=llama2-7b&devices=64xH100&tokens=300B"
        page.emulate_media(color_scheme="light")
        shot(page, plan, "plan", high=1000)
        page.set_viewport_size({"width": 400, "height": 820})
        shot(page, f"{address}/jobs", "phone", wide=400, high=820)
        browser.close()


def shot(page: Page, address: str, name: str, *, wide: int = 1360, high: int = 860) -> None:
    page.set_viewport_size({"width": wide, "height": high})
    page.goto(address)
    page.wait_for_timeout(3_000)
    path = PICTURES / f"{name}.png"
    page.screenshot(path=path)
    # A page has few colours: a palette more than halves what everybody clones.
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    sys.stdout.write(f"docs/pictures/{name}.png\n")


if __name__ == "__main__":
    main()
