// What the letters of a setting mean, shown where a reader points at one: `N = 100` and the heads of columns.
"use strict";

const MEANING = {
  N: "number of clients",
  C: "share of the clients that take part in a round",
  T: "communication rounds",
  E: "local epochs that a client trains in a round",
  B: "batch size, in images",
  n: "number of seeds, that is of repetitions",
};

document.addEventListener("DOMContentLoaded", () => {
  const article = document.querySelector("article");
  if (!article) return;
  const walker = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
  const found = [];
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const head = node.parentElement.tagName === "TH" && node.textContent.trim() in MEANING;
    const named = /(?<![\w.])[NCTEBn](?=[ \u00a0]=[ \u00a0])/.test(node.textContent);
    if ((head || named) && !node.parentElement.closest("pre, code, script, style, math, select, .class-api, dl.py")) found.push([node, head]);
  }
  found.forEach(([node, head]) => {
    const parts = node.textContent.split(head ? /\b([NCTEBn])\b/ : /(?<![\w.])([NCTEBn])(?=[ \u00a0]=[ \u00a0])/);
    node.replaceWith(
      ...parts.map((part, place) => {
        if (place % 2 === 0) return document.createTextNode(part);
        const letter = document.createElement("abbr");
        letter.title = MEANING[part];
        letter.textContent = part;
        return letter;
      }),
    );
  });
});
