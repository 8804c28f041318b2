// SPDX-License-Identifier: Apache-2.0
// service.js PORT: answers GET /N with a document as JSON, and keeps the newest 2,000 of them.
'use strict';
const http = require('http');
const kept = new Map();

function documentOf(n) {
  const items = [];
  for (let i = 0; i < 40; i++) items.push({ id: n * 40 + i, name: 'item ' + i, tags: ['a' + n, 'b' + i] });
  return JSON.stringify({ n, items });
}

let served = 0;
const server = http.createServer((request, response) => {
  if (request.url === '/quit') {
    response.end();
    server.close();
    server.closeAllConnections?.();
    return;
  }
  const n = served++ % 5000;
  let text = kept.get(n);
  if (text === undefined) {
    text = documentOf(n);
    kept.set(n, text);
    if (kept.size > 2000) kept.delete(kept.keys().next().value);
  }
  response.setHeader('Content-Length', Buffer.byteLength(text));
  response.end(text);
});
server.keepAliveTimeout = 60000;
server.maxRequestsPerSocket = 0;
server.listen(Number(process.argv[2]), '127.0.0.1');
