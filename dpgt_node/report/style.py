"""The style sheet of ``report.html``: nothing from elsewhere, light or dark by the reader's system."""

CSS = """
:root {
  color-scheme: light dark;
  --sans: ui-sans-serif, system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  --serif: "Iowan Old Style", "Palatino Linotype", Palatino, "URW Palladio L", P052, Georgia, serif;
  --mono: ui-monospace, "SF Mono", "Cascadia Code", Menlo, Consolas, "DejaVu Sans Mono", monospace;
  --page: #f6f5f1; --surface: #fffefb; --ink: #1d1f24; --muted: #63676f; --line: #e3e0d8;
  --accent: #1f5fbf; --worst: #c2351b; --worst-wash: #fbeae4; --warn: #b3261e; --warn-wash: #fcecea; --good: #23744a;
  --s1: #1f5fbf; --s2: #b98400; --s3: #1a8a6a; --s4: #a3399b; --s5: #8a5a3c; --s6: #4d7c0f; --s7: #0e8aa8;
    --s8: #7454c6;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14161a; --surface: #1c1f25; --ink: #e8e6e1; --muted: #9ba1ab; --line: #31353d;
    --accent: #7fb0ff; --worst: #ff8a6b; --worst-wash: #37231e; --warn: #ff9a90; --warn-wash: #3a2122;
      --good: #7fd0a4;
    --s1: #7fb0ff; --s2: #f2c14e; --s3: #5fd0ab; --s4: #ee93dd; --s5: #cfa588; --s6: #a8cc5c; --s7: #62cbe6;
      --s8: #b7a1ff;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.55 var(--sans); }
main { max-width: 1080px; margin: 0 auto; padding: 44px 24px 64px; }
header { margin-bottom: 28px; }
.over { color: var(--muted); font-size: 12px; letter-spacing: .08em; text-transform: uppercase; }
h1 { font: 600 38px/1.15 var(--serif); margin: 4px 0 10px; overflow-wrap: anywhere; }
h2 { font: 600 22px/1.25 var(--serif); margin: 44px 0 4px; }
h3 { font-size: 14px; font-weight: 600; margin: 0; }
p { margin: 0 0 .8em; max-width: 72ch; }
.lead { color: var(--muted); margin: 0; max-width: none; }
.note { color: var(--muted); font-size: 13.5px; margin: 0 0 14px; max-width: none; }
.badge { display: inline-block; font-size: 12px; font-weight: 600; padding: 1px 10px; border-radius: 99px;
  vertical-align: middle;
  border: 1px solid currentColor; color: var(--warn); font-family: var(--sans); letter-spacing: 0; }
.badge.finished { color: var(--good); }
.id { font-family: var(--mono); font-size: 12.5px; overflow-wrap: anywhere; }
.warning { border-left: 4px solid var(--warn); background: var(--warn-wash); color: var(--warn); font-weight: 500;
  padding: 9px 14px; border-radius: 0 8px 8px 0; margin: 0 0 8px; max-width: none; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(210px, 1fr)); gap: 14px; margin: 24px 0 0; }
.tile, figure, .card { background: var(--surface); border: 1px solid var(--line); border-radius: 12px; }
.tile { padding: 15px 18px 14px; margin: 0; }
.tile dt { color: var(--muted); font-size: 13px; }
.tile dd { margin: 0; }
.tile .value { font: 600 31px/1.25 var(--serif); font-variant-numeric: lining-nums tabular-nums;
  overflow-wrap: anywhere; }
.tile .sub { color: var(--muted); font-size: 13px; overflow-wrap: anywhere; }
.tile.worst .value, .tile.worst b { color: var(--worst); }
b { font-weight: 600; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 8px 0 12px; padding: 0; list-style: none;
  font-size: 13.5px; }
.legend li { overflow-wrap: anywhere; }
.swatch { display: inline-block; width: 18px; height: 3px; border-radius: 2px; vertical-align: 4px;
  margin-right: 7px; }
.swatch.thick { height: 5px; vertical-align: 3px; }
.swatch.wash { height: 12px; opacity: .25; vertical-align: -1px; }
.swatch.dot { width: 12px; height: 12px; border-radius: 50%; vertical-align: -1px; border: 1.5px solid var(--accent);
  }
.swatch.open { border-color: var(--muted); }
.swatch.ring { outline: 1.5px solid var(--accent); outline-offset: 2px; background: none; width: 9px; height: 9px;
  margin-left: 4px; border-color: var(--muted); }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); gap: 14px; }
figure { margin: 0; padding: 14px 16px 10px; }
figcaption { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 12px; align-items: baseline;
  margin-bottom: 6px; }
figcaption span { color: var(--muted); font-size: 13px; }
figure .none { color: var(--muted); margin: 28px 0; text-align: center; max-width: none; }
.plot { display: block; overflow: visible; width: 100%; height: auto; stroke-linejoin: round; stroke-linecap: butt; }
.graphR, .graphC { max-width: 420px; margin: 0 auto; }
.privacy { display: grid; grid-template-columns: minmax(260px, 2fr) 3fr; gap: 26px; padding: 20px 22px 12px;
  margin-top: 12px; }
.facts { margin: 0; font-size: 14px; }
.facts div { padding: 6px 0; border-top: 1px solid var(--line); }
.facts div:first-child { border-top: 0; padding-top: 0; }
.facts dt { color: var(--muted); font-size: 12.5px; }
.facts dd { margin: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.scroll { overflow: auto; max-height: 560px; margin-top: 12px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th { position: sticky; top: 0; background: var(--surface); color: var(--muted); font-weight: 500; font-size: 13px;
  text-align: right; vertical-align: bottom; box-shadow: inset 0 -1px var(--line); }
th, td { padding: 7px 16px; }
td { text-align: right; border-top: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
td:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 12ch; }
tr.worst td { background: var(--worst-wash); font-weight: 600; }
tr.shown td { font-weight: 600; }
tr.other td { color: var(--muted); }
td.why { text-align: left; white-space: normal; color: var(--muted); }
h3.gap { margin: 22px 0 2px; }
tr.worst .tag { color: var(--worst); font-size: 12.5px; margin-left: 8px; }
details { margin-top: 12px; }
.attack { padding: 16px 22px 8px; margin: 12px 0 0; }
.attack .badge { color: var(--muted); margin-left: 6px; }
.attack .badge.bad { color: var(--warn); }
.attack .badge.good { color: var(--good); }
.attack summary { padding: 8px 0; }
.attack td { vertical-align: top; }
.attack td .note { white-space: normal; margin: 2px 0 0; max-width: 46ch; }
.pictures { overflow-x: auto; margin: 6px 0 10px; }
.pictures img { display: block; border-radius: 6px; image-rendering: pixelated; }
summary { cursor: pointer; padding: 11px 18px; color: var(--muted); font-size: 13.5px; }
pre { margin: 0; padding: 4px 18px 16px; overflow: auto; max-height: 620px; font: 12.5px/1.55 var(--mono);
  tab-size: 2; }
pre .sec { color: var(--accent); font-weight: 600; }
pre .key { color: var(--muted); }
footer { margin-top: 40px; padding-top: 14px; border-top: 1px solid var(--line); color: var(--muted);
  font-size: 12.5px; }
@media (max-width: 720px) { .privacy { grid-template-columns: 1fr; } main { padding: 26px 14px 48px; }
  h1 { font-size: 30px; } }
@media print {
  body { background: none; } main { max-width: none; padding: 0; } .scroll, pre { max-height: none; }
  figure, .tile, .card, tr { break-inside: avoid; }
}
"""
