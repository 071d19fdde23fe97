// Requests to this server: one at a time, the latest wins; nothing else is ever asked.
export class Latest {
  // after(answer, query) runs for every answer, also while a newer one is wanted: a dragged slider keeps painting
  constructor(address, after, failed) {
    Object.assign(this, { address, after, failed, running: false, wanted: null });
  }

  async ask(query) {
    this.wanted = query;
    if (this.running) return;
    this.running = true;
    while (this.wanted !== null) {
      const now = this.wanted;
      this.wanted = null;
      try {
        const response = await fetch(this.address(now));
        const answer = await response.json();
        if (response.ok) await this.after(answer, now, this.wanted !== null);
        else this.failed(answer, now);
      } catch (error) {
        this.failed(null, now, error);
      }
    }
    this.running = false;
  }
}

export class Replaceable {
  // a newer request ends the older one, and the server ends its work
  constructor() {
    this.controller = null;
  }

  async ask(address) {
    this.controller?.abort();
    const controller = new AbortController();
    this.controller = controller;
    try {
      const response = await fetch(address, { signal: controller.signal });
      const answer = await response.json();
      return { ok: response.ok, answer };
    } catch (error) {
      if (error.name === "AbortError") return null;
      return { ok: false, answer: null };
    }
  }
}
