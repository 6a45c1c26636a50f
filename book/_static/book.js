// What a page needs a script for, and reads well without.
(() => {
  "use strict";

  // A box that scrolls can be reached by keyboard; one that fits is no stop on the way.
  const boxes = ".math-scroll, .plot-frame, .pst-scrollable-table-container, .bd-article pre";
  const mark = (box) => {
    if (box.scrollWidth > box.clientWidth + 1) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  };
  addEventListener("DOMContentLoaded", () => {
    const observer = new ResizeObserver((entries) => entries.forEach((entry) => mark(entry.target)));
    document.querySelectorAll(boxes).forEach((box) => observer.observe(box));
  });

  // The theme takes the focus away from its buttons when they are clicked: right for a mouse, not for a keyboard.
  addEventListener("DOMContentLoaded", () => {
    const buttons = ".theme-switch-button, .search-button__button, .primary-toggle, .secondary-toggle";
    for (const button of document.querySelectorAll(buttons)) {
      button.blur = () => button.matches(":focus-visible") || HTMLElement.prototype.blur.call(button);
    }
  });

  // From a folder, without a server, no page can be fetched to quote from: a search finds titles alone then.
  if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS !== "undefined") {
    DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  }

  // A found passage is quoted without the LaTeX behind its formulas and without the cards of its numbers.
  addEventListener("DOMContentLoaded", () => {
    if (typeof Search === "undefined" || !Search.htmlToText) return; // only the search page has it
    const htmlToText = Search.htmlToText;
    Search.htmlToText = (html, anchor) => {
      const page = new DOMParser().parseFromString(html, "text/html");
      page.querySelectorAll("annotation, .claim-card").forEach((element) => element.remove());
      return htmlToText(page.documentElement.outerHTML, anchor);
    };
  });
})();
