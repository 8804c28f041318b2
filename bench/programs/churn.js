// SPDX-License-Identifier: Apache-2.0
// Buffers, typed arrays, zlib, JSON and regular expressions in Node: churn.js SIZE (rounds).
// Objects are in V8's heap; malloc serves backing stores, zlib states and the runtime itself.
'use strict';
const crypto = require('crypto');
const zlib = require('zlib');

let state = 20261120;
function random(limit) {
  state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
  return (state >>> 8) % limit;
}

const digest = crypto.createHash('sha256');
const kept = new Map();
for (let round = 0; round < Number(process.argv[2]); round++) {
  for (let i = 0; i < 6000; i++) {
    const bytes = Buffer.alloc(random(3000) + 4100, i & 255);
    kept.set(random(4000), bytes);
    if (i % 50 === 0) digest.update(bytes);
  }
  const rows = Array.from({ length: 3000 }, (_, i) => ({ i, name: 'n'.repeat(random(80)), v: random(999) }));
  const text = JSON.stringify(rows);
  const packed = zlib.deflateSync(text, { level: 1 });
  const back = JSON.parse(zlib.inflateSync(packed).toString());
  const small = Array.from({ length: 200 }, (_, i) => zlib.gzipSync(Buffer.alloc(100 + i), { level: 1 }));
  for (const one of small) digest.update(one.subarray(10));
  digest.update(packed);
  const named = text.match(/"name":"n{40,}"/g).length;
  console.log(round, text.length, back.length, named, kept.size);
}
console.log(digest.digest('hex'));
