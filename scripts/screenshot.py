"""Takes the documentation's picture of TensorBoard, in a headless Chromium.

Runs the demo into a temporary folder, starts TensorBoard on it, and photographs two of its pages.

    .venv/bin/python scripts/screenshot.py [--chromium chromium]
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# picture: page of TensorBoard
PAGES = {
    "tensorboard_scalars": "#custom_scalars",
    "tensorboard_images": "#images",
}


def main() -> None:
    """Writes ``docs/pictures/tensorboard_*.png``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chromium", default="chromium", help="the browser's command")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        demo = [sys.executable, str(ROOT / "examples" / "digits_stdp.py"), "--seeds", "1"]
        subprocess.run(demo, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, "-m", "tensorboard.main", "--port", str(port)]
        command += ["--logdir", "lightning_logs"]
        board = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
        try:
            address = f"http://127.0.0.1:{port}/"
            _wait_for(f"{address}data/runs")
            for name, page in PAGES.items():
                _photograph(args.chromium, f"{address}{page}", f"{folder}/profile", name)
        finally:
            board.terminate()


def _wait_for(address: str) -> None:
    for _ in range(120):
        try:
            with urllib.request.urlopen(address) as answer:
                if answer.read().strip() not in (b"", b"[]"):
                    return
        except OSError:
            pass
        time.sleep(0.5)
    raise RuntimeError(f"Expected TensorBoard to have read the run. Found nothing at {address}.")


def _photograph(chromium: str, address: str, profile: str, name: str) -> None:
    picture = ROOT / "docs" / "pictures" / f"{name}.png"
    options = [
        "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--window-size=1500,780", "--virtual-time-budget=60000", f"--user-data-dir={profile}",
        f"--screenshot={picture}",
    ]  # fmt: skip
    for _ in range(3):  # the first times its lines may still be missing
        subprocess.run([chromium, *options, address], check=True, stderr=subprocess.DEVNULL)
    print(picture)


if __name__ == "__main__":
    main()
