"""python3 wheel.py FILE: writes the smallest package that pip takes, demo 1.0."""

import sys
import zipfile

FILES = {
    "demo.py": "",
    "demo-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
    "demo-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: e2e\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "demo-1.0.dist-info/RECORD": "",
}

with zipfile.ZipFile(sys.argv[1], "w") as wheel:
    for name, text in FILES.items():
        wheel.writestr(name, text)
