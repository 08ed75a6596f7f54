import assert from "node:assert/strict";
import { test } from "node:test";
import { loaded } from "./loaded.mjs";

const files = ["page.js", "attention.js", "sentence_view.js", "route_view.js"];
const { route } = loaded(files, ["route"]);
// Two layers of one decoder, two tokens: [stack, row, part, head, token, source, thousandths].
const decoder = {
  top: "decoder",
  rows: { decoder: [[0, "self"], [0, "feed-forward"], [1, "self"], [1, "feed-forward"]] },
  edges: [
    [0, 3, 1, -1, 1, 1, 300], [0, 3, 2, -1, 1, 1, 700], [0, 2, 2, -1, 1, 1, 950], [0, 2, 0, 2, 1, 0, 50],
    [0, 1, 2, -1, 1, 1, 999], [0, 1, 2, -1, 0, 0, 990], [0, 0, 2, -1, 1, 1, 900], [0, 0, 0, 1, 0, 0, 100], [0, 0, 2, -1, 0, 0, 900],
  ],
};

const last = (token) => ({ stack: 0, row: 4, token });

test("a route follows edges from a least share on, from the prediction down to the tokens", () => {
  const low = route.trace(decoder, last(1), 0.04), high = route.trace(decoder, last(1), 0.1);
  assert.equal(low.edges.length, 9);
  assert.ok(low.reached.has("0.0.0") && low.reached.has("0.0.1"));
  assert.equal(high.edges.length, 5);
  assert.ok(!high.reached.has("0.0.0"));
});

test("edges of tokens that the route does not reach are left out", () => {
  assert.deepEqual(route.trace(decoder, last(0), 0.01).edges.length, 0);
});

test("a route starts at any state", () => {
  const { edges, reached } = route.trace(decoder, { stack: 0, row: 2, token: 0 }, 0.01);
  assert.equal(edges.length, 3);
  assert.deepEqual([...reached].sort(), ["0.0.0", "0.1.0", "0.2.0"]);
});

test("heads from one token to another are one line, the strongest first; other parts have their own", () => {
  const edge = (part, head, source, share) => ({ stack: 0, row: 0, part, head, token: 1, source, share });
  const lines = route.lines([edge(0, 3, 0, 0.1), edge(0, 5, 0, 0.4), edge(0, 3, 1, 0.2), edge(2, -1, 1, 0.3)]);
  assert.equal(lines.map((own) => own.map((one) => one.head).join()).join(" "), "5,3 -1 3");
});

test("cross-attention leads to the encoder's last row", () => {
  const both = {
    top: "decoder", rows: { encoder: [[0, "self"]], decoder: [[0, "self"], [0, "cross"]] },
    edges: [[0, 0, 2, -1, 0, 0, 1000], [1, 1, 0, 0, 0, 0, 400], [1, 1, 2, -1, 0, 0, 600], [1, 0, 2, -1, 0, 0, 1000]],
  };
  const { edges, reached } = route.trace(both, { stack: 1, row: 2, token: 0 }, 0.2);
  assert.equal(edges.length, 4);
  assert.ok(reached.has("0.1.0") && reached.has("0.0.0") && reached.has("1.0.0"));
});
