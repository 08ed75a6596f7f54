import assert from "node:assert/strict";
import { test } from "node:test";
import { loaded } from "./loaded.mjs";

const { flow } = loaded(["page.js", "attention.js", "flow.js"], ["flow"]);
const tokens = ["a", "b"].map((text) => ({ text, special: false }));
const near = (found, expected) => expected.forEach((value, index) => assert.ok(Math.abs(found[index] - value) < 1e-6, `${found}`));

test("a trace multiplies the layers' shares down to the input", () => {
  const of = { tokens, mixing: [Float32Array.of(0.8, 0.2, 0.5, 0.5), Float32Array.of(1, 0, 0.4, 0.6)], across: null };
  const { reaches } = flow.from(of, { level: 2, token: 1 });
  near(reaches[2], [0, 1]);
  near(reaches[1], [0.4, 0.6]);
  near(reaches[0], [0.4 * 0.8 + 0.6 * 0.5, 0.4 * 0.2 + 0.6 * 0.5]);
});

test("what came from the source is missing on the own side", () => {
  const of = { tokens, mixing: [Float32Array.of(1, 0, 0, 1)], across: [Float32Array.of(0.1, 0.2, 0.3, 0, 0, 0)] };
  const { reaches, source } = flow.from(of, { level: 1, token: 0 });
  near(source, [0.1, 0.2, 0.3]);
  near(reaches[0], [0.4, 0]);
});

test("names of blocks become numbers", async () => {
  const loadedFlow = await flow.load({ tokens, mixing: ["m"], across: null }, async () => Uint8Array.of(255, 0, 51, 204));
  near(loadedFlow.mixing[0], [1, 0, 0.04, 0.64]);
});
