/* A browser starts no worker on a page that was opened from a disk: there the search runs in a hidden frame. */
class FrameWorker extends EventTarget {
  constructor(address) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.inside = frame.contentWindow;
    window.addEventListener("message", (said) => {
      if (said.source === this.inside) this.dispatchEvent(new MessageEvent("message", { data: said.data }));
    });
    const page = this.inside.document;
    page.open(); // which forgets earlier listeners
    this.ready = new Promise((done) => this.inside.addEventListener("load", done));
    page.write(`<script>postMessage = (data) => parent.postMessage(data, "*")</script><script src="${address}"></script>`);
    page.close();
  }
  postMessage(data) {
    this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
  }
}
if (location.protocol === "file:") window.Worker = FrameWorker;
