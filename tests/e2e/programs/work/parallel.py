"""python3 parallel.py URL: fetches it in processes of each kind that share a dictionary by a manager, and in threads."""

import concurrent.futures
import multiprocessing
import subprocess
import sys
import urllib.request


def fetch(url):
    return urllib.request.urlopen(url, timeout=30).read().decode().split(" request=")[0]


def fetch_into(results, number, url):
    results[number] = fetch(url)


def main(url):
    for method in multiprocessing.get_all_start_methods():
        context = multiprocessing.get_context(method)
        with context.Manager() as manager:
            results = manager.dict()
            processes = [context.Process(target=fetch_into, args=(results, number, url)) for number in range(4)]
            for process in processes:
                process.start()
            for process in processes:
                process.join()
            print(method, len(results), *set(results.values()), flush=True)
        with context.Pool(2) as pool:
            print(method, "pool", *set(pool.map(fetch, [url] * 4)), flush=True)
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        print("threads", *set(threads.map(fetch, [url] * 16)), flush=True)
    words = [sys.executable, "-c", "import sys; print(sys.stdin.read().upper())"]
    print(subprocess.run(words, input="from a child", capture_output=True, text=True).stdout.strip(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
