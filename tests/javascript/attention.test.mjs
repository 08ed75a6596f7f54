import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync } from "node:zlib";
import { loaded } from "./loaded.mjs";

const { attention } = loaded(["page.js", "attention.js"], ["attention"]);
const near = (found, expected, by = 1e-6) => {
  assert.equal(found.length, expected.length);
  expected.forEach((value, index) => assert.ok(Math.abs(found[index] - value) <= by, `${index}: ${found[index]}, not ${value}`));
};

test("a byte stands for the square of its share", () => {
  near(attention.weightsOf(Uint8Array.of(0, 51, 255)), [0, 0.04, 1]);
  near(attention.signedOf(Uint8Array.of(0, 127, 129)), [0, 1, -1]); // 129 is −127
});

test("packed bytes come back", async () => {
  const bytes = Uint8Array.from({ length: 1000 }, (_, index) => index % 251);
  assert.deepEqual([...(await attention.unpack(` ${deflateSync(bytes).toString("base64")}\n`))], [...bytes]);
});

test("value-weighted shares are those of a row, and stay zero where all are", () => {
  near(attention.valueWeighted(Float32Array.of(0.5, 0.5, 0, 0), Float32Array.of(1, 3)), [0.25, 0.75, 0, 0]);
});

test("percentages keep a digit below ten", () => {
  const told = [1, 0.1, 0.0994, 0.004, 0.0004, 0, -0.25].map(attention.percent);
  assert.deepEqual(told, ["100%", "10%", "9.9%", "0.4%", "0%", "0%", "−25%"]);
});

test("tokens are shown by their kind and their sentence", () => {
  const tokens = [
    { text: "[CLS]", special: true, segment: 0 },
    { text: "a", special: false, segment: 0 },
    { text: "[SEP]", special: true, segment: 0 },
    { text: "b", special: false, segment: 1 },
  ];
  const shown = (...how) => [...attention.shownTokens(tokens, ...how)];
  assert.deepEqual([shown(false), shown(true), shown(false, 1), shown(true, 0)], [[0, 1, 2, 3], [1, 3], [3], [1]]);
});

test("a thumbnail's cell holds the largest weight that it covers", () => {
  const bytes = Uint8Array.from({ length: 16 }, (_, index) => index);
  const { cells, height, across } = attention.reduced(bytes, 0, [0, 1, 2, 3], [0, 1, 2, 3], 4, 2);
  assert.deepEqual([[...cells], height, across], [[5, 7, 13, 15], 2, 2]);
  const whole = attention.reduced(bytes, 4, [0, 2], [1], 4, 2); // of rows 1 and 3 of the block
  assert.deepEqual([[...whole.cells], whole.height, whole.across], [[5, 13], 2, 1]);
});

test("of changes that share a cell the largest counts, with its sign", () => {
  const { cells } = attention.reducedSigned(Float32Array.of(0.25, -1, 0, 0), [0, 1], [0, 1], 2, 1);
  assert.deepEqual([...cells], [attention.signedLevel(-1)]);
  assert.deepEqual([-1, 0, 1].map(attention.signedLevel), [0, 128, 255]);
});

test("a ramp goes from the first colour over the middle to the last", () => {
  const colors = { "heat-0": "#000000", "heat-1": "#102030", "heat-2": "#ffffff", below: "#ff0000", above: "#0000ff" };
  const [plain, signed] = [attention.ramp(colors), attention.ramp(colors, true)];
  assert.deepEqual([[...plain[0]], [...plain[255]]], [[0, 0, 0], [255, 255, 255]]);
  assert.deepEqual([[...signed[0]], [...signed[255]]], [[255, 0, 0], [0, 0, 255]]);
  near([...plain[128]], [16, 32, 48], 2);
});
