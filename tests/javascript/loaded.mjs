// The pages' scripts in a context without a page: elements are stand-ins that accept everything.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import vm from "node:vm";

const SOURCES = new URL("../../src/infoflow/", import.meta.url);
const FOLDERS = ["report", ...readdirSync(new URL("subjects/", SOURCES)).map((name) => `subjects/${name}`)].map((name) => new URL(`${name}/templates/`, SOURCES));
const found = (file) => FOLDERS.map((folder) => new URL(file, folder)).find((url) => existsSync(url));

/** Any property of a stand-in is another one, and calling it gives another one. */
export const standIn = () =>
  new Proxy(function () {}, {
    get: (own, name) => {
      if (name === Symbol.toPrimitive) return () => "";
      if (name === Symbol.iterator) return [][Symbol.iterator];
      return name in own && name !== "name" && name !== "length" ? own[name] : (own[name] = standIn());
    },
    apply: () => standIn(),
    set: (own, name, value) => ((own[name] = value), true),
  });

/** What the scripts call by these names, after the given files have run. */
export const loaded = (files, names, more = {}) => {
  const globals = { document: standIn(), matchMedia: standIn(), addEventListener() {}, location: { hash: "", pathname: "/" }, ...more };
  const web = { atob, Blob, Response, DecompressionStream, TextDecoder, URL, crypto, performance, setTimeout, clearTimeout };
  const context = vm.createContext({ ...web, ...globals });
  for (const file of files) vm.runInContext(readFileSync(found(file), "utf8"), context, { filename: file });
  return vm.runInContext(`({ ${names.join(", ")} })`, context);
};
