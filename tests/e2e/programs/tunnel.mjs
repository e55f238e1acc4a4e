// node tunnel.mjs URL: fetches an https URL through a tunnel of the proxy in $https_proxy, as proxy agents do. Prints the
// status and the text, or why not.
import http from 'node:http';
import https from 'node:https';
import tls from 'node:tls';

const proxy = new URL(process.env.https_proxy);

class TunnelAgent extends https.Agent {
  createConnection(options, callback) {
    const target = `${options.host}:${options.port}`;
    const request = http.request({
      host: proxy.hostname,
      port: proxy.port,
      method: 'CONNECT',
      path: target,
      headers: { host: target },
    });
    request.once('connect', (response, socket) => {
      if (response.statusCode === 200) {
        callback(null, tls.connect({ ...options, socket, servername: options.host }));
      } else {
        callback(new Error(`the proxy answers ${response.statusCode}: ${response.headers['proxy-status']}`));
      }
    });
    request.once('error', callback);
    request.end();
  }
}

https
  .get(process.argv[2], { agent: new TunnelAgent() }, async (response) => {
    console.log(`status ${response.statusCode}`);
    for await (const text of response.setEncoding('utf8')) {
      process.stdout.write(text);
    }
  })
  .on('error', (error) => {
    console.log(`failed ${error.message}`);
    process.exitCode = 1;
  });
