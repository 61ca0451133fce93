"""Where an engine keeps what we show: data, a file an engine, which the object reader follows.

A map is names of attributes and functions, with those of other versions beside them. What a version has not stays
unknown, and the probe says which.
"""

from msgspec import Struct

from inferdbg.facts.sections.pulse import Phase

Names = tuple[str, ...]
"""One thing under the names that it has in different versions, the newest first."""


class EngineMap(Struct, frozen=True):
    """``loop``: the function that runs for ever, whose local ``self`` all paths begin with. ``steps``: the functions
    that run one step each; what they call at one place is done before they go on. ``waits``: what they call to wait
    for the model. ``changing``: functions in which the scheduler may be half-changed. ``phases``: a function to what
    the engine does while it is called; the innermost call that is named decides. ``idle``: functions of which all must
    be called for the engine to wait for requests. ``starting``: the function that makes the engine before it loops.

    ``output``: local variable of a step's function that holds what was scheduled. ``objects``: our word to paths of
    long-lived objects. ``scheduler``, ``pool``, ``free_queue``: our word to attributes of these three. ``request``:
    our word to attributes of a request; ``reuse``: to those that tell what of its prompt may be found again.
    ``scheduled``: to attributes of what a step scheduled. ``facts``: to paths of
    what never changes. ``statuses``: the engine's word for how a request is to ours; others are waiting.
    ``threads``: how the names of threads begin that must be there, to what each does. ``queues``: our word to paths
    of queues between threads.

    ``front``: the class of the object by which the front end waits for requests, and ``front_states``: paths of its
    dict of them; ``front_request``: our word to attributes of one; ``front_times``: of its times.
    """

    engine: str
    module: str
    loop: str
    steps: Names
    waits: Names
    changing: frozenset[str]
    phases: dict[str, Phase]
    idle: Names
    starting: str
    output: str
    objects: dict[str, Names]
    scheduler: dict[str, Names]
    pool: dict[str, Names]
    free_queue: dict[str, Names]
    block: dict[str, Names]
    request: dict[str, Names]
    reuse: dict[str, Names]
    scheduled: dict[str, Names]
    facts: dict[str, Names]
    statuses: dict[str, str]
    threads: dict[str, str]
    queues: dict[str, Names]
    front: str
    front_states: Names
    front_request: dict[str, Names]
    front_times: dict[str, Names]
