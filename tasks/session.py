"""A session: one store, one listener, and what the tasks of one build found and did.

Here Luigi, the store and the phases meet. A task asks the session whether it is complete, and lets it do the work:
early cutoff, the lock of the key, reading the inputs, computing, publishing, and the record of it all.
"""

from __future__ import annotations

import atexit
import contextvars
import os
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import luigi
from luigi.task import flatten

from mlsdk import store as stores
from mlsdk.errors import MLSDKError
from mlsdk.store import Action, Build, Event, Memory, ObjectLost, Recipe, Store, StoreError
from mlsdk.store.failpoints import hit
from mlsdk.tasks import scheduler
from mlsdk.tasks.channel import Channel, Told
from mlsdk.tasks.content import ContentTask
from mlsdk.tasks.errors import Failure, WorkerError, WorkflowError, cause, kind_of
from mlsdk.tasks.progress import Listener, Progress, quiet

# An object can be lost again while it is rebuilt (a dying disk); then the error is shown.
_ATTEMPTS = 5


@dataclass(frozen=True)
class Services:
    """What a phase may use beside its inputs. Nothing of it may change a result."""

    memory: Callable[[str], Memory]  # remembered answers, such as node simulations
    # a few words about what is going on now; of "run 3 of 8" the visualiser also shows how far that is
    status: Callable[[str], None]
    processes: int | None = None  # that may compute at once, for what is simulated; None: as many as are free
    cut_short: Callable[[], None] | None = (
        None  # tells that the result is less than was asked for; None: it must not be
    )


@dataclass(frozen=True)
class Done:
    """A task of this session that has its result."""

    task: ContentTask
    action: Action
    outcome: str  # built, cached
    seconds: float = 0.0
    reason: str = ""


@dataclass
class Session:
    """`with Session(store) as session:` makes it the current one."""

    store: Store
    listener: Listener = quiet
    label: str = ""
    force: Collection[str] = ()  # names of phases that are computed again, whatever the store has
    keep_answers: bool = True  # False: ask the store each time, for a session that outlives a build
    done: dict[str, Done] = field(default_factory=dict)
    failure: Failure | None = None
    facts: dict[str, Any] = field(default_factory=dict)  # for the history: options, preset, device
    channel: Channel | None = None  # where worker processes tell what they did
    may_cut_short: bool = True  # Ctrl-C may end a search, and the build goes on with what that has
    began: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        self._answers: dict[str, Action] = {}
        self.told: set[str] = set()
        self._clock = time.perf_counter()
        self._pid = os.getpid()  # workers are processes of their own
        self._shown = False

    # -- look up -----------------------------------------------------------------------------------------------------

    def resolve(self, task: ContentTask) -> Action | None:
        """The task's result, or None when it or something above it has still to be computed."""
        return self._resolve(task, self._answers if self.keep_answers else {})

    def read(self, task: ContentTask, name: str) -> bytes:
        """An artifact of a complete task. What was lost in the meantime is built again."""
        for _attempt in range(_ATTEMPTS):
            action = self.resolve(task)
            if action is None:
                self.drive(task)
                continue
            if name not in action.outputs:
                raise WorkflowError(f"{task!r} has no artifact {name}; it gives {', '.join(sorted(action.outputs))}")
            try:
                return self.store.read(action.outputs[name])
            except ObjectLost:
                self._forget()
        raise StoreError(f"{name} of {task!r} was lost {_ATTEMPTS} times; check the disk, run `mlsdk store fsck`")

    def _resolve(self, task: ContentTask, answers: dict[str, Action]) -> Action | None:
        known = answers.get(task.task_id)
        if known is not None:
            return known
        if self._is_forced(task):
            return None
        recipe = self._recipe(task, answers)
        action = self.store.get(recipe) if recipe is not None else None
        if action is None or not task.gives(action):
            return None
        answers[task.task_id] = action
        self.note(Done(task, action, "cached"))
        return action

    def _recipe(self, task: ContentTask, answers: dict[str, Action]) -> Recipe | None:
        digests = {}
        for name, (upstream, artifact) in task.upstream().items():
            action = self._resolve(upstream, answers)
            if action is None:
                return None
            if artifact in action.outputs:
                digests[name] = action.outputs[artifact].digest
            elif artifact not in {one.name for one in upstream.artifacts if one.optional}:
                raise WorkflowError(f"{task!r} takes {artifact}, which {upstream!r} does not give")
        return task.recipe(digests)

    def recipe(self, task: ContentTask) -> Recipe | None:
        """The task's recipe; None while an input is not complete."""
        return self._recipe(task, self._answers if self.keep_answers else {})

    def _is_forced(self, task: ContentTask) -> bool:
        done = self.done.get(task.task_id)
        return task.phase_name in self.force and (done is None or done.outcome != "built")

    def _forget(self) -> None:
        self._answers.clear()

    # -- do ----------------------------------------------------------------------------------------------------------

    def drive(self, task: luigi.Task) -> None:
        """Complete a task and everything above it, in this process, without Luigi's scheduler."""
        if task.complete():
            return
        for required in flatten(task.requires()):
            self.drive(required)
        found_later = task.run()
        if isinstance(found_later, Generator):  # a user's task with requirements that it finds while it runs
            for requirements in found_later:
                for required in flatten(requirements):
                    self.drive(required)

    def produce(self, task: ContentTask) -> None:
        """The body of every task's run()."""
        try:
            self._produce(task)
        except BaseException as error:
            if self.failure is None:
                self.failure = Failure(task.phase_name, task.label, error)
                if isinstance(error, MLSDKError):
                    error.phase = task.phase_name
                self._tell(task, "failed", error=error)
                self.listener(Progress("failed", task.phase_name, task.label, 0.0, cause(error)))
            raise

    def _produce(self, task: ContentTask) -> None:
        for _attempt in range(_ATTEMPTS):
            recipe = self.recipe(task)
            if recipe is None:
                raise WorkflowError(f"{task!r}: what it requires is not complete; build that first")
            # Luigi asked before anything ran. With the inputs known, the same result may be there already.
            if not self._is_forced(task) and self.resolve(task) is not None:
                return
            try:
                inputs = self._inputs(task)
            except ObjectLost:
                self._forget()
                for required in task.requires():
                    self.drive(required)
                continue
            hit("task.inputs_read")
            self._compute(task, recipe, inputs)
            return
        raise StoreError(f"the inputs of {task!r} were lost {_ATTEMPTS} times; check the disk, run `mlsdk store fsck`")

    def _inputs(self, task: ContentTask) -> dict[str, bytes]:
        inputs = {}
        for name, (upstream, artifact) in task.upstream().items():
            action = self.resolve(upstream)
            if action is None:
                raise ObjectLost(f"{artifact} of {upstream!r} is gone")
            if artifact in action.outputs:
                inputs[name] = self.store.read(action.outputs[artifact])
        return inputs

    def _compute(self, task: ContentTask, recipe: Recipe, inputs: Mapping[str, bytes]) -> None:
        def waiting(holder: str) -> None:
            self.listener(Progress("waiting", task.phase_name, task.label, 0.0, f"waits for {holder}"))

        with self.store.lock(recipe.digest, f"{task.phase_name} of {task.label or 'a build'}", None, waiting):
            # Another process may have computed it while this one waited.
            if not self._is_forced(task) and self.resolve(task) is not None:
                return
            reason = "forced" if self._is_forced(task) else self.store.reason(recipe, task.label)
            scheduler.tell(task, reason, 0, dashboard=True)
            self._tell(task, "started")
            self._show_in_history(task)
            self.listener(Progress("start", task.phase_name, task.label, 0.0, reason))
            clock = time.perf_counter()
            cut: list[float] = []
            outputs = task.compute(inputs, self._services(task, lambda: cut.append(time.time())))
            seconds = time.perf_counter() - clock
            hit("task.computed")
            scheduler.tell(task, "publishing", 99)
            if cut:  # for this session only: nobody else asks for it under this key
                recipe = replace(recipe, options={**recipe.options, "cut short": str(cut[-1])})
            action = self.store.publish(
                recipe,
                _checked(task, outputs),
                kinds={artifact.name: artifact.kind for artifact in task.artifacts},
                volatile=[artifact.name for artifact in task.artifacts if artifact.volatile],
                label=task.label,
                seconds=seconds,
            )
        scheduler.tell(task, f"built in {seconds:.2f} s", 100)
        if self.keep_answers:
            self._answers[task.task_id] = action
        self.note(Done(task, action, "built", seconds, reason))

    def _services(self, task: ContentTask, cut_short: Callable[[], None]) -> Services:
        def status(words: str) -> None:
            scheduler.tell(task, words, scheduler.percentage(words))
            self.listener(Progress("running", task.phase_name, task.label, 0.0, words))

        alone = self.may_cut_short and self.keep_answers and self.channel is None
        memory = partial(self.store.memory, afresh=self._is_forced(task))
        return Services(memory, status, cut_short=cut_short if alone else None)

    def note(self, done: Done) -> None:
        """A task has its result."""
        name = done.task.task_id
        if done.outcome == "cached" and name in self.done:
            return
        self.done[name] = done
        if done.outcome == "built":
            self._tell(done.task, done.outcome, done.seconds, done.reason)
        if not self.keep_answers and done.outcome == "cached":
            return
        if name not in self.told:
            self.told.add(name)
            self.listener(Progress(done.outcome, done.task.phase_name, done.task.label, done.seconds, done.reason))

    def _tell(
        self,
        task: ContentTask,
        outcome: str,
        seconds: float = 0.0,
        reason: str = "",
        error: BaseException | None = None,
    ) -> None:
        if self.channel is None or self.channel.pid == os.getpid():
            return
        failure = Failure(task.phase_name, task.label, error) if error is not None else None
        self.channel.tell(
            Told(
                task.task_id,
                task.phase_name,
                task.label,
                outcome,
                seconds,
                reason,
                cause(error) if error is not None else "",
                failure.node if failure else "",
                kind_of(error) if error is not None else "",
            )
        )

    def keep(self, tasks: Collection[ContentTask]) -> None:
        """Forget what other tasks than these did: it belongs to another build."""
        wanted = {task.task_id for task in tasks}
        self.done = {name: done for name, done in self.done.items() if name in wanted}

    def hear(self, goals: list[luigi.Task], how_it_ended: Callable[[str], str]) -> None:
        """Take over what worker processes did for these tasks. Of one that was killed, `how_it_ended` knows more."""
        if self.channel is None:
            return
        tasks = {task.task_id: task for task in goals if isinstance(task, ContentTask)}
        last = {told.task: told for told in self.channel.heard() if told.task in tasks}
        for told in last.values():
            if told.outcome == "built":
                action = self.resolve(tasks[told.task])
                if action is not None:
                    self.done[told.task] = Done(tasks[told.task], action, told.outcome, told.seconds, told.reason)
            elif told.outcome == "failed" and self.failure is None:
                self.failure = Failure(told.phase, told.label, WorkerError.of(told))
            elif told.outcome == "started" and self.failure is None:
                error = WorkerError(f"its worker process {how_it_ended(told.task)}; run the same command again")
                self.failure = Failure(told.phase, told.label, error)

    # -- end ---------------------------------------------------------------------------------------------------------

    def _show_in_history(self, task: ContentTask) -> None:
        """From the first phase that is computed on there is a row, which a build that is killed leaves behind."""
        if not self._shown:
            self._shown = True
            self.store.began(self._build(self.label or task.label))

    def _build(self, label: str, status: str = "running", events: Collection[Event] = ()) -> Build:
        error = str(self.failure) if self.failure else ""
        seconds, command = time.perf_counter() - self._clock, " ".join(sys.argv)[:500]
        return Build(label, self.began, seconds, status, error, command, tuple(events), self.facts, self._pid)

    def record(self) -> None:
        """Write what was done into the store's history."""
        events = [
            Event(
                done.task.phase_name,
                done.task.label,
                done.action.digest,
                done.action.parts,
                done.outcome,
                done.reason,
                done.seconds,
            )
            for done in self.done.values()
        ]
        error = self.failure.error if self.failure else None
        status = "ok" if error is None else "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        if not events and error is None and not self._shown:
            return
        self.store.record(self._build(self.label or (events[-1].label if events else ""), status, events))

    @contextmanager
    def resumed(self) -> Iterator[Session]:
        """Make an ended session current again, for reading."""
        token = _current.set(self)
        try:
            yield self
        finally:
            _current.reset(token)

    @contextmanager
    def active(self, last: bool = True) -> Iterator[Session]:
        """Make this the session that tasks ask; at the end, record: what failed, and if it is the `last` one, the rest."""
        token = _current.set(self)
        try:
            yield self
        except BaseException as error:
            if self.failure is None:
                self.failure = Failure("build", self.label, error)
            try:
                self.record()
            except StoreError:
                pass  # the error that stopped the build is the one to show
            raise
        else:
            if last:
                self.record()
        finally:
            _current.reset(token)


def _checked(task: ContentTask, outputs: Mapping[str, bytes]) -> dict[str, bytes]:
    """The outputs, if they are what the task promised."""
    promised = {artifact.name: artifact for artifact in task.artifacts}
    missing = [name for name, artifact in promised.items() if name not in outputs and not artifact.optional]
    extra = sorted(outputs.keys() - promised.keys())
    if missing or extra:
        told = [f"did not give {', '.join(missing)}"] * bool(missing) + [f"gave {', '.join(extra)}"] * bool(extra)
        raise WorkflowError(f"{task!r} {' and '.join(told)}; it promises {', '.join(promised) or 'nothing'}")
    wrong = [name for name, data in outputs.items() if not isinstance(data, bytes)]
    if wrong:
        raise WorkflowError(f"{task!r} gave {wrong[0]} as {type(outputs[wrong[0]]).__name__}; artifacts are bytes")
    return dict(outputs)


_current: contextvars.ContextVar[Session | None] = contextvars.ContextVar("mlsdk_session", default=None)
_default: Session | None = None


def current() -> Session:
    """The active session; without one (the `luigi` command), one on the default store that lives with the process."""
    session = _current.get()
    if session is not None:
        return session
    global _default
    if _default is None or _default.store.where != str(stores.location().absolute()):
        _default = Session(stores.open(), keep_answers=False)
        atexit.register(_close, _default)
    return _default


def _close(session: Session) -> None:
    try:
        session.record()
        session.store.close()
    except StoreError:
        pass  # at exit there is nobody left to tell; the results are published
