import assert from "node:assert/strict";
import { test } from "node:test";
import { loaded } from "./loaded.mjs";

const start = { command: "infoflow explore", examples: [], text: "" };
const element = (text = "") => new Proxy({ textContent: text, value: "" }, { get: (own, name) => own[name] ?? (() => element()), set: (own, name, value) => ((own[name] = value), true) });
const document = {
  documentElement: { classList: { add() {} }, dataset: {} },
  createElement: () => ({ getContext: () => ({}) }),
  querySelector: (selector) => element({ "#models": "[]", "#start": JSON.stringify(start) }[selector]),
  querySelectorAll: () => [],
};
const files = ["page.js", "attention.js", "sentence_view.js", "route_view.js", "predictions.js", "effects.js", "explorer.js"];
const at = (hash, written = {}) => loaded(files, ["page", "wire"], { document, location: { hash, pathname: "/" }, history: { replaceState: (_, __, to) => { written.to = to; } } });
const { wire } = at("");

test("places in the address are names and numbers, there and back", () => {
  assert.equal(JSON.stringify(wire.places("encoder.self.0.11,decoder.2")), '[["encoder","self",0,11],["decoder",2]]');
  assert.equal(wire.written(wire.places("encoder.self.0.11,decoder.2")), "encoder.self.0.11,decoder.2");
  assert.equal(wire.places(undefined).length, 0);
});

test("an answer is its head and the arrays that it names", () => {
  const head = new TextEncoder().encode(JSON.stringify({ key: "é", arrays: [["a", 2], ["b", 1]] }));
  const whole = new Uint8Array(4 + head.length + 3);
  new DataView(whole.buffer).setUint32(0, head.length, true);
  whole.set(head, 4);
  whole.set([7, 8, 9], 4 + head.length);
  const found = wire.unwired(whole.buffer);
  assert.equal(found.head.key, "é");
  assert.deepEqual([...found.arrays].map(([name, bytes]) => [name, [...bytes]]), [["a", [7, 8]], ["b", [9]]]);
});

test("a token is found in another model's tokens by its place in the text", () => {
  const tokens = (...texts) => texts.map((text) => ({ text, special: text.startsWith("[") }));
  const [pieces, words] = [tokens("[CLS]", "play", "##ing", "cards", "[SEP]"), tokens("playing", "cards")];
  assert.deepEqual([1, 2, 3].map((index) => wire.sameToken(pieces, index, words)), [0, 0, 1]);
  assert.equal(wire.sameToken(words, 1, pieces), 3);
  assert.equal(wire.sameToken(pieces, 0, words), -1);
});

test("the address keeps what is chosen, and forgets what is empty", () => {
  const written = {};
  const { page } = at("#;text=a%20cat%3B;head=3", written);
  assert.deepEqual([page.state.text, page.state.head], ["a cat;", "3"]);
  page.remember({ head: "", layer: "2", map: null, view: undefined });
  assert.equal(written.to, "#;text=a%20cat%3B;layer=2");
  assert.equal(at("#;text=%E0%A4%A").page.state.text, ""); // no text at all
});
