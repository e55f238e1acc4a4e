"""python3 fetch.py URL: the status and the text of what is there. Reads http_proxy and https_proxy, as urllib does."""

import sys
import urllib.error
import urllib.request

try:
    with urllib.request.urlopen(sys.argv[1], timeout=20) as response:
        print("status", response.status)
        print(response.read().decode())
except urllib.error.HTTPError as error:
    print("status", error.code)
    print(error.read().decode())
except OSError as error:
    print("failed", error)
    sys.exit(1)
