// node parallel.mjs URL: fetches it in worker threads, in child processes, and in the workers of a cluster that share a port.
import { fork, execFile } from "node:child_process";
import cluster from "node:cluster";
import { createServer, get } from "node:http";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";

const file = fileURLToPath(import.meta.url);
const answer = async (url) => (await (await fetch(url)).text()).trim();
const heard = (emitter) => new Promise((resolve, reject) => emitter.once("message", resolve).once("error", reject));

if (!isMainThread) {
  parentPort.postMessage(await answer(workerData));
} else if (process.argv[3] === "child") {
  process.send(await answer(process.argv[2]));
  process.disconnect();
} else if (cluster.isWorker) {
  createServer(async (_, response) => response.end(await answer(process.argv[2]))).listen(0, "127.0.0.1");
} else {
  const url = process.argv[2];
  const workers = Array.from({ length: 4 }, () => heard(new Worker(file, { workerData: url })));
  console.log("threads", ...(await Promise.all(workers)));
  const children = Array.from({ length: 4 }, () => heard(fork(file, [url, "child"])));
  console.log("children", ...(await Promise.all(children)));
  const { stdout } = await promisify(execFile)("sh", ["-c", "echo from a shell | tr a-z A-Z"]);
  console.log(stdout.trim());
  cluster.setupPrimary({ exec: file, args: [url] });
  const ports = Array.from({ length: 2 }, cluster.fork).map(
    (worker) => new Promise((resolve) => worker.once("listening", (address) => resolve(address.port))),
  );
  const [port] = await Promise.all(ports);
  get({ host: "127.0.0.1", port }, async (response) => {
    let text = "";
    for await (const part of response) text += part;
    console.log("cluster", text);
    cluster.disconnect();
  });
}
