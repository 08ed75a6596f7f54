// What the pages' scripts share, for `make types`; browsers never see it. Parameters without a type are `any` here.

/** A token as `report/_view.py` writes it; of a pair also its sentence. */
interface Token { text: string; special: boolean; segment?: 0 | 1 }
type Tokens = Record<string, Token[]>; // by stack
interface LayerOfHeads {
  layer: number; heads: number; groups: number; width: number; scaling: number; biased: boolean;
  scales: { query: number[]; key: number[] };
}
interface AttentionKind {
  id: string; label: string; stack: string; keys: string; kind: "self" | "cross"; causal: boolean;
  layers: LayerOfHeads[]; telling: { layer: number; head: number; told: string }[];
}
/** Bytes of a block, by its name; at once, or when they arrive. */
type Blocks = (name: string) => Promise<Uint8Array>;
type Candidate = [id: number, share: number];
interface Lens { stack: string; positions: number[]; layers: Candidate[][][]; names: Record<number, string> }
interface HeadRow { stack: string; kind: string; layer: number; heads: (number | null | undefined)[] }
interface RelevanceAnswer {
  tokens: Record<string, number[]>; heads: HeadRow[]; signed: boolean; position: number; method: string;
  target?: number; target_name?: string; against?: number; against_name?: string;
}
interface Effect {
  stack: string; names: Record<number, string>; divergence?: (number | null)[]; before: Candidate[][]; after: Candidate[][];
  distance: Record<string, (number | null)[][]>;
}
interface Strip { stack: string; token?: number; kind?: string; layer?: number; head?: number; divergence?: number | null; distance?: number | null }
/** What `subjects/routes/view.py` writes: `[stack, row, part, head, token, source, thousandths]` of each edge. */
interface RouteData { top: string; rows: Record<string, [layer: number, sublayer: string][]>; edges: number[][] }
interface RouteEdge { stack: number; row: number; part: number; head: number; token: number; source: number; share: number }
/** A state: a token before all rows of its stack (0), or after one. */
interface RouteNode { stack: number; row: number; token: number }

/** What `subjects/patching/view.py` writes: effects and metrics by stack, layer and column. */
interface SwapGrid { stack: string; kind: string; columns: string[]; rows: { layer: number; effects: (number | null)[]; metrics: (number | null)[] }[] }
interface SwapData {
  tokens: Token[]; chosen: [number, string][]; offered: [id: number, name: string, first: number, second: number][][];
  metrics: [number, number]; grids: SwapGrid[];
}
interface SwapCell { grid: SwapGrid; layer: number; column: string; effect: number | null; metric: number | null }
/** Numbers by layer and column. */
interface ValueGrid {
  caption: string; columns: string[]; rows: { layer: number; values: (number | null | undefined)[] }[]; signed: boolean; most: number;
  wide?: string; cell(button: HTMLElement, layer: number, column: number, value: number | null | undefined): void;
}

/** One sentence in one model: `view_payload`, with what the offline file or the live page adds. */
interface ViewData {
  model: string; text: string; translation: string | null; pair: string | null; tokens: Tokens; last: string;
  further: string[]; predicts: boolean; any_special: boolean; kinds: AttentionKind[];
  block: Blocks;
  ask(what: string, request?: object): Promise<any>;
  answers?: { lens?: Lens[]; relevance?: RelevanceAnswer[]; swap?: SwapData[]; tokens?: Strip[]; heads?: Strip[] };
  before?: ViewData; effect?: Effect; strips?: { tokens?: Strip[]; heads?: Strip[] };
  state?: string; opens?: string; key?: string; live?: boolean; running?: string;
  painted?(): void; chosen?(): void; start?(what: string): void; stop?(): void;
}
/** What a further view may know and do. */
interface ViewContext {
  root: HTMLElement; stage: HTMLElement; status: HTMLElement; data: ViewData; suffix: string;
  say(text: string): void; kind(): AttentionKind; layer(): LayerOfHeads; head(): number; query(): number;
  queries(): Token[]; keys(): Token[]; hideSpecial(): boolean; own(name: string): string | undefined; scale(): HTMLElement;
  change(changes: Record<string, string>): void; draw(how: () => string): void; current(): boolean;
  show(...parts: Node[]): void;
}
interface FurtherView { label: string; there(data: ViewData): boolean; paint(context: ViewContext): void }

/** A head that is drawn as lines. */
interface DrawnHead { shares: Float32Array; color: string; name: string }
interface Place { side: number; index: number }
type Level = (row: number, column: number) => number;
interface Cells { cells: Uint8Array; height: number; across: number }
interface Drawing { group: SVGElement; width: number; height: number }

// Listeners of these pages hear from elements.
interface EventTarget { closest(selector: string): any; hidden?: any }
declare function vegaEmbed(target: Element, spec: object, options: object): Promise<{ view: any }>;
