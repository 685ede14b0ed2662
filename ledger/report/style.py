"""How a report looks: light and dark, from a phone to a desk, on paper."""

from __future__ import annotations

from typing import Final

__all__ = ["CSS"]

CSS: Final = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1b1f24;--soft:#57606a;--line:#d0d7de;--fill:#f6f8fa;
--good:#116329;--bad:#a40e26;--open:#7d4e00;--c0:#0550ae;--c1:#953800;--c2:#6639ba;--c3:#0f6b62;--c4:#99286e;--c5:#57606a;--lost:#6e7781}
@media (prefers-color-scheme:dark){:root{--paper:#0d1117;--ink:#e6edf3;--soft:#9aa4af;--line:#30363d;--fill:#161b22;
--good:#56d364;--bad:#ff7b72;--open:#e3b341;--c0:#79c0ff;--c1:#ffa657;--c2:#d2a8ff;--c3:#56d4c4;--c4:#ff9bce;--c5:#9aa4af;--lost:#8b949e}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0 auto;max-width:60rem;padding:1rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5rem;line-height:1.25;margin:.5rem 0}
h2{font-size:1.2rem;margin:2.2rem 0 .6rem;padding-top:.8rem;border-top:1px solid var(--line)}
h3{font-size:1rem;margin:1.6rem 0 .2rem}
h4{font-size:.95rem;margin:1.2rem 0 .2rem}
p,ul,ol,dl{margin:.4rem 0}
.soft,figcaption,.none,caption{color:var(--soft);font-size:.875rem}
.verdict{display:inline-block;margin:.3rem 0;padding:.15rem .7rem;border:2px solid;border-radius:.4rem;font-weight:700}
.passed{color:var(--good)}.failed,.error{color:var(--bad)}.incomplete,.missing,.warning{color:var(--open)}
.verdict.incomplete{border-style:dashed}.verdict.failed{border-style:double;border-width:4px}
dl.facts{display:grid;grid-template-columns:minmax(7rem,max-content) 1fr;gap:.15rem 1rem;font-size:.9rem}
dl.facts dt{color:var(--soft)}dl.facts dd{margin:0;min-width:0}
code{font:.85em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.findings{list-style:none;padding:0}
.findings>li{margin:.6rem 0;padding:.1rem 0 .1rem .8rem;border-left:4px solid}
.findings p{color:var(--ink);margin:.1rem 0}
.wide{overflow-x:auto;margin:.5rem 0}
.wide:focus-visible{outline:2px solid var(--c0)}
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums;min-width:100%}
caption{text-align:left;padding:.2rem 0}
th,td{padding:.2rem .7rem .2rem 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--line);
overflow-wrap:normal}
thead th{color:var(--soft);font-weight:600}
tbody th{font-weight:600}
.why{display:block;min-width:8rem;max-width:26rem;color:var(--soft);font-weight:400}
figure{margin:.2rem 0}
.plot{display:block;background:var(--fill);border-radius:.3rem;overflow:visible}
.grid{stroke:var(--line);stroke-width:1}.axis{stroke:var(--soft);stroke-width:1}
.mark{font:11px system-ui,sans-serif;fill:var(--soft);stroke:var(--fill);stroke-width:3px;paint-order:stroke}
.cross{font:700 14px system-ui,sans-serif;fill:var(--bad)}
.line{fill:none;stroke-width:1.8;vector-effect:non-scaling-stroke;stroke-linejoin:round}
.c0{stroke:var(--c0)}.c1{stroke:var(--c1);stroke-dasharray:7 3}.c2{stroke:var(--c2);stroke-dasharray:2 3}
.c3{stroke:var(--c3);stroke-dasharray:9 3 2 3}.c4{stroke:var(--c4);stroke-dasharray:4 2 1 2 1 2}
.c5{stroke:var(--c5);stroke-dasharray:12 4}
.faint{stroke:var(--lost);stroke-width:1.4;stroke-dasharray:3 3}
.dots{stroke-width:6;stroke-linecap:round;stroke-dasharray:none}
.dots.faint{stroke-width:4}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem 1.2rem;margin:.2rem 0 .4rem;padding:0}
.legend svg{vertical-align:middle}
.sessions{list-style:none;padding:0}
.sessions>li{margin:.7rem 0}
.sessions svg{display:block;margin-top:.2rem}
.track{fill:var(--fill)}.kept{fill:var(--c0)}
.lost{fill:var(--fill);stroke:var(--c1);stroke-width:2;stroke-dasharray:4 3}
footer{margin-top:2.5rem;padding-top:.6rem;border-top:1px solid var(--line)}
@media (max-width:30rem){body{padding:.7rem}dl.facts{grid-template-columns:1fr}dl.facts dd{margin-bottom:.35rem}
th,td{padding-right:.5rem}}
@media print{:root{color-scheme:light;--paper:#fff;--ink:#000;--soft:#444;--line:#bbb;--fill:#fff;
--good:#116329;--bad:#a40e26;--open:#7d4e00;--c0:#0550ae;--c1:#953800;--c2:#6639ba;--c3:#0f6b62;--c4:#99286e;--c5:#57606a;--lost:#6e7781}
body{max-width:none;padding:0;font-size:11pt}.chart,.sessions>li,.findings>li,tr{break-inside:avoid}
h2,h3,h4{break-after:avoid}.wide{overflow:visible}.plot{border:1px solid var(--line)}}
"""
