"""I19 over logs of a few commits: silent when every end counts once, and loud when one counts twice, or never."""

from lab.scenarios.invariants import Auditor
from services.api.switches import Switches
from services.telemetry.eventlog import Line

HELD = ["batch.kubernetes.io/job-tracking"]


class Log:
    """Commits of one job, uid j, and of its pods, by name."""

    def __init__(self):
        self.lines = []

    def _commit(self, kind, name, kind_of_change, data):
        rv = len(self.lines) + 1
        obj = {"kind": kind, "ns": "default", "name": name, "uid": {"Job": "j"}.get(kind, name)}
        data = {"type": kind_of_change, "verb": "patch", "content_sha256": f"c{rv}", **data}
        self.lines.append(Line(1, rv, rv * 1000, "", "apiserver", "i", "store.commit", obj=obj, rv=rv, data=data))
        return self

    def pod(self, name, phase="Running", *, held=True, change="MODIFIED", **data):
        facts = {"node": "n1", "phase": phase, "owners": ["j"], "finalizers": HELD if held else [], **data}
        return self._commit("Pod", name, change, facts)

    def job(self, succeeded=0, failed=0, uncounted=(), finished=False, exact=True):
        counts = {"succeeded": succeeded, "failed": failed, "uncounted": list(uncounted), "finished": finished,
                  "exact": exact}  # fmt: skip
        return self._commit("Job", "work", "MODIFIED" if self.lines else "ADDED", {"job": counts})


def judge(log):
    auditor = Auditor(Switches())
    for line in log.lines:
        auditor.take(line)
    return [v.detail for v in auditor.violations if v.invariant == "I19"]


def counted():
    log = Log().job().pod("a", change="ADDED").pod("a", "Succeeded")
    return log.job(uncounted=["a"]).pod("a", "Succeeded", held=False).job(succeeded=1)


def test_an_end_that_is_counted_in_three_steps_breaks_nothing():
    assert judge(counted().job(succeeded=1, finished=True)) == []


def test_a_uid_that_comes_back_to_be_counted_again():
    (found,) = [text for text in judge(counted().job(succeeded=1, uncounted=["a"])) if "second time" in text]
    assert "pod a" in found


def test_a_counter_that_falls():
    assert any("fell from 1 succeeded" in text for text in judge(counted().job()))


def test_more_counted_than_ended_while_tracked():
    assert judge(Log().job().pod("a", change="ADDED").job(failed=1)) == [
        "1 ends are counted or about to be, 0 tracked pods have ended"
    ]


def test_a_finished_job_that_left_an_end_out():
    log = counted().pod("b", change="ADDED").pod("b", "Failed").job(succeeded=1, finished=True)
    assert judge(log) == ["finished with 1 ends counted, 2 tracked pods have ended"]


def test_with_a_policy_an_end_may_be_left_out():
    log = counted().pod("b", change="ADDED").pod("b", "Failed").job(succeeded=1, finished=True, exact=False)
    assert judge(log) == []


def test_a_pod_that_is_let_go_before_it_is_deleted_did_not_end():
    log = counted().pod("b", change="ADDED").pod("b", held=False).pod("b", held=False, deletion="t")
    assert judge(log.job(succeeded=1, finished=True)) == []


def test_a_pod_created_after_the_job_had_finished():
    (found,) = judge(counted().job(succeeded=1, finished=True).pod("late", change="ADDED"))
    assert found == "created at version 8 after its job had finished at 7"
