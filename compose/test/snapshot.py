#!/usr/bin/env python3
"""Writes what a tracer says when a rank of a job fails in ibv_reg_mr: a Hello and a snapshot of
rdmesh.collector.v1.IngestService/Report, as JSON for grpcurl.

    snapshot.py HOST JOB | grpcurl -plaintext -d @ ADDRESS rdmesh.collector.v1.IngestService/Report
"""

import base64
import json
import sys
import time
import uuid

host, job = sys.argv[1:3]
boot_ns = 1_000 * 10**9
now_ns = time.time_ns()
clock = {"boottimeNs": boot_ns, "realtimeNs": now_ns}
began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_ns // 10**9))
words = ["", "ib_umem_get", "rxe_reg_user_mr", "ib_uverbs_reg_mr", "ib_uverbs", "rdma_rxe",
         "rank", "/job", job, "rxe0", "eth0"]
environment = "IDENTITY_SOURCE_ENVIRONMENT"
fell_ns = boot_ns - 10**9

hello = {"agent": "AGENT_KIND_TRACER", "host": host, "bootId": "b", "runId": str(uuid.uuid4()),
         "version": "0.1.0", "address": "", "startedAt": began, "clock": clock}
snapshot = {
    "clock": clock,
    "intervalStartBootNs": boot_ns - 5 * 10**9,
    "intervalEndBootNs": boot_ns,
    "strings": [base64.b64encode(word.encode()).decode() for word in words],
    "probes": {"function": [1, 2, 3], "module": [4, 5, 4],
               "layer": ["LAYER_MEMORY", "LAYER_DRIVER", "LAYER_UVERBS"],
               "verb": ["VERB_UNSPECIFIED", "VERB_REG_MR", "VERB_REG_MR"],
               "object": ["OBJECT_TYPE_UMEM", "OBJECT_TYPE_MR", "OBJECT_TYPE_MR"]},
    "signatures": {"driver": [5], "steps": [3], "stepProbe": [0, 1, 2],
                   "stepErrno": [14, 14, 14]},
    "cgroups": {"id": [77], "path": [7], "jobId": [8], "requeue": [0], "restart": [0],
                "source": [environment]},
    "tasks": {"tgid": [4242], "tid": [4242], "startBootNs": [fell_ns], "comm": [6],
              "cgroup": [0], "jobId": [8], "requeue": [0], "restart": [0], "rank": [0],
              "localRank": [0], "source": [environment]},
    "devices": {"name": [9], "netdev": [10], "pci": [0], "driver": [5]},
    "chains": {"signature": [0], "task": [0], "devicePlusOne": [1], "count": [2],
               "firstBootNs": [fell_ns], "lastBootNs": [fell_ns], "marks": [0]},
    "counters": {"probe": [0, 1, 2], "errno": [14, 14, 14], "delta": [2, 2, 2],
                 "total": [2, 2, 2]},
}
print(json.dumps({"hello": hello}))
print(json.dumps({"sequence": 1, "snapshot": snapshot}))
