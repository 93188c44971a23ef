// What the letters of a setting mean, shown where a reader points at one: `N = 100` and the heads of columns; and of a word that is the
// project's own, where it stands first on a page.
"use strict";

const MEANING = {
  N: "number of clients",
  C: "share of the clients that take part in a round",
  T: "communication rounds",
  E: "local epochs that a client trains in a round",
  B: "batch size, in images",
  n: "number of seeds, that is of repetitions",
};

const WORDS = {
  Standalone: "each client trains alone: nothing is exchanged",
  visited: "of clients that have taken part in some round so far",
  "of record": "committed in results/, trained on real data at the scale called record",
  "stand-in": "small embedded data in place of the paper's: shows the mechanics, is compared with no printed number",
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
  const told = (letters, meaning) => {
    const shown = document.createElement("abbr");
    shown.title = meaning;
    shown.textContent = letters;
    return shown;
  };
  Object.entries(WORDS).forEach(([word, meaning]) => {
    const texts = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const node = texts.currentNode;
      const at = node.textContent.search(new RegExp(`\\b${word}\\b`));
      if (at < 0 || node.parentElement.closest("a, h1, h2, h3, pre, code, script, style, math, select, option, label, abbr, .class-api, dl.py")) continue;
      const rest = node.splitText(at);
      rest.splitText(word.length);
      rest.replaceWith(told(word, meaning));
      return;
    }
  });
  found.forEach(([node, head]) => {
    const parts = node.textContent.split(head ? /\b([NCTEBn])\b/ : /(?<![\w.])([NCTEBn])(?=[ \u00a0]=[ \u00a0])/);
    node.replaceWith(
      ...parts.map((part, place) => {
        if (place % 2 === 0) return document.createTextNode(part);
        return told(part, MEANING[part]);
      }),
    );
  });
});
