"""Traces in SimKube's form, of the facts of its own example: a CronJob whose three pods ran 30 seconds each."""

import msgspec

BEGAN = 0x67E87227
OWNER = ("batch/v1.CronJob", "default/hello-simkube")
LIVES = [(0x67E8724D, 0x67E8726B), (0x67E87289, 0x67E872A7), (0x67E872C5, 0x67E872E3)]
CONFIG = {
    "trackedObjects": {
        "apps/v1.Deployment": {"podSpecTemplatePaths": ["/spec/template"]},
        "batch/v1.CronJob": {"podSpecTemplatePaths": ["/spec/jobTemplate/spec/template"], "trackLifecycle": True},
        "apps/v1.StatefulSet": {"podSpecTemplatePaths": ["/spec/template"]},
    }
}


def cronjob(**more):
    sleeper = {
        "command": ["sleep", "30"],
        "image": "busybox",
        "imagePullPolicy": "Always",
        "name": "sleeper",
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
    spec = {
        "containers": [sleeper],
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Never",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 1,
    }
    template = {"metadata": {"creationTimestamp": None, "name": "simkube-job"}, "spec": spec}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"annotations": {}, "name": "hello-simkube", "namespace": "default"},
        "spec": {
            "concurrencyPolicy": "Allow",
            "failedJobsHistoryLimit": 1,
            "jobTemplate": {"metadata": {"creationTimestamp": None}, "spec": {"template": template}},
            "schedule": "* * * * *",
            "successfulJobsHistoryLimit": 3,
            "suspend": False,
        },
        **more,
    }


def deployment(name="web", replicas=2, spec=None, **more):
    pods = {"containers": [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "1"}}}], **(spec or {})}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": pods},
        },
        **more,
    }


def event(at_s, applied=(), deleted=()):
    return {"ts": BEGAN + at_s, "applied_objs": list(applied), "deleted_objs": list(deleted)}


def trace(events=None, lives=None, version=2, config=CONFIG):
    events = [event(0), event(0, [cronjob()]), event(205, [], [cronjob()])] if events is None else events
    lives = {OWNER: {10854683: [{"Finished": list(each)} for each in LIVES]}} if lives is None else lives
    index = {"batch/v1.CronJob": {"default/hello-simkube": 17113483}}
    whole = {"version": version, "config": config, "events": events, "index": index, "pod_lifecycles": lives}
    return msgspec.msgpack.encode(whole)
