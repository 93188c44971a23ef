// Tables with data-select, and cards with data-filter: a box to search in, and a choice for each named column. And access by keyboard.
"use strict";

function makeFilter(place, rows, names, valueOf, noun) {
  const bar = document.createElement("div");
  bar.className = "choices";
  const box = document.createElement("input");
  box.type = "search";
  box.placeholder = "search";
  box.setAttribute("aria-label", "search");
  bar.append(box);
  const chosen = names.map((name) => {
    const select = document.createElement("select");
    select.setAttribute("aria-label", name || "differs");
    const values = [...new Set(rows.flatMap((row) => valueOf(row, name).split(", ")))].filter(Boolean);
    select.append(new Option(`${name || "fields"}: all`, ""));
    values.forEach((value) => select.append(new Option(value, value)));
    bar.append(select);
    return [name, select];
  });
  const count = document.createElement("span");
  count.className = "count";
  count.setAttribute("aria-live", "polite");
  bar.append(count);
  const update = () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row) => {
      const text = row.textContent.toLowerCase();
      const fits = chosen.every(([name, select]) => !select.value || valueOf(row, name).split(", ").includes(select.value));
      row.hidden = !(fits && words.every((word) => text.includes(word)));
      row.style.display = row.hidden ? "none" : "";
      shown += !row.hidden;
    });
    count.textContent = `${shown} of ${rows.length} ${noun}`;
  };
  bar.addEventListener("input", update);
  place.before(bar);
  update();
}

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("table[data-select]").forEach((table) => {
    const columns = [...table.querySelectorAll("th")].map((head) => head.textContent);
    const valueOf = (row, name) => row.cells[columns.indexOf(name)].textContent.trim();
    makeFilter(table, [...table.tBodies[0].rows], table.dataset.select.split("|"), valueOf, "rows");
  });
  document.querySelectorAll("[data-filter]").forEach((cards) => {
    makeFilter(cards, [...cards.children], cards.dataset.filter.split("|"), (card, name) => card.dataset[name], "exhibits");
  });
});

// What scrolls sideways can be reached, and scrolled, by keyboard; and the two columns beside a page have names.
window.addEventListener("load", () => {
  document.querySelectorAll("article pre, article .wide, article .cell_output, article .math").forEach((part) => {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
  });
  document.querySelector(".sidebar-drawer")?.setAttribute("aria-label", "all pages");
  document.querySelector(".toc-drawer")?.setAttribute("aria-label", "on this page");
});
