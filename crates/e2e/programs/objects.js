// node: objects, strings and typed arrays of random content; reads and updates at random.
const count = Number(process.argv[2]);
const crypto = require("crypto");
let state = 7n;
function draw(end) {
  state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
  return Number(state >> 33n) % end;
}
const items = [];
for (let at = 0; at < count; at++) {
  const noise = new Uint32Array(48);
  for (let k = 0, x = at * 2654435761 + 1; k < 48; k++) {
    x ^= x << 13; x ^= x >>> 17; x ^= x << 5;
    noise[k] = x;
  }
  items.push({ id: at, name: `item ${at}`, tags: [at % 7, at % 11], noise });
}
const sum = crypto.createHash("sha256");
for (let step = 0; step < count / 4; step++) {
  const item = items[draw(count)];
  item.tags[0] += 1;
  item.noise[step % 48] ^= step;
  sum.update(`${item.id} ${item.name} ${item.tags} ${item.noise[draw(48)]};`);
}
console.log(items.length, sum.digest("hex"));
