/** Thrown when the device refuses a task, a model or a request. `reason` is stable; `message` is for people. */
export class Refused extends Error {
  constructor(
    readonly reason: string,
    message: string,
  ) {
    super(message);
    this.name = "Refused";
  }

  /** Each bundle of this package has a copy of this class, so `instanceof` goes by the name. */
  static [Symbol.hasInstance](error: unknown): error is Refused {
    return error instanceof Error && error.name === "Refused" && "reason" in error;
  }
}
