// Escape closes the card of a claim without moving pointer or focus (WCAG 1.4.13). All else works without script.
(() => {
  "use strict";
  const open = () => document.querySelectorAll(".claim:is(:hover, :focus, :focus-within):not([data-dismissed])");
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.isComposing) return;
    for (const claim of open()) {
      // The link inside a card vanishes with it, so its focus goes back to the number.
      if (claim.contains(document.activeElement) && claim !== document.activeElement) claim.focus();
      claim.dataset.dismissed = "";
    }
  });
  // A card that was closed opens again once pointer and focus have left, and come back.
  const reset = (event) => {
    const claim = event.target instanceof Element ? event.target.closest(".claim[data-dismissed]") : null;
    if (!claim || claim.contains(event.relatedTarget)) return;
    if (event.type === "focusout" ? claim.matches(":hover") : claim.contains(document.activeElement)) return;
    delete claim.dataset.dismissed;
  };
  document.addEventListener("pointerout", reset);
  document.addEventListener("focusout", reset);
  // Safari on a phone opens a card by tapping only where something listens for touches.
  document.addEventListener("touchstart", () => {}, { passive: true });
})();
