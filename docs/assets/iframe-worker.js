/* A Worker for pages that are opened as files, where browsers allow none: the script runs in a hidden
   frame instead. The search of the documentation's site is such a worker; its theme names this file's
   kind in `extra.polyfills` (mkdocs.yml). */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.ready = new Promise(resolve => { this.frame.onload = resolve })
      this.hear = event => {
        if (event.source === this.frame.contentWindow)
          this.dispatchEvent(new MessageEvent("message", { data: event.data }))
      }
      addEventListener("message", this.hear)
      const script = document.createElement("script")
      script.src = new URL(url, document.baseURI)
      this.frame.srcdoc = `<script>
        postMessage = parent.postMessage.bind(parent)
        importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise((done, fail) => {
          const script = document.createElement("script")
          Object.assign(script, { src: url, onload: done, onerror: fail })
          document.body.append(script)
        })), Promise.resolve())
        </scr` + `ipt>${script.outerHTML}`
      document.body.append(this.frame)
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }
    terminate() {
      removeEventListener("message", this.hear)
      this.frame.remove()
    }
  }
}
