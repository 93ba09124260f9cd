"""Sweeps on a cluster of two workers on this machine. PLEAT is the program."""

import asyncio
import contextlib
import gc
import io
import json
import os
import subprocess
import tempfile
import unittest

from distributed import Client, LocalCluster, wait

from pleat.sweep import SimError, Sweep, collect, main, play

PLEAT = os.environ["PLEAT"]
SYSTEMS, SIZES = ["pleat", "zswap", "off"], ["25%", "50%"]


class OnTwoWorkers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.traces = []
        for name in ["zipf", "sequential"]:
            path = os.path.join(cls.directory.name, f"{name}.trace")
            synth = [PLEAT, "synth", name, "--pages", "3000", "--references", "100000", "--out", path]
            subprocess.run(synth, check=True)
            cls.traces.append(path)
        cls.cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
        cls.client = Client(cls.cluster)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.cluster.close()
        cls.directory.cleanup()

    def sim(self, *words):
        command = [PLEAT, "sim", *self.traces, *words, "--json", "-"]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)

    def test_both_work_and_rows_are_those_of_one_run(self):
        sweep = Sweep(self.traces, system=SYSTEMS, ram=SIZES, options=["--backing", "sata-ssd"], pleat=PLEAT)
        futures = sweep.submit(self.client)
        wait(futures)
        at_work = {worker for holders in self.client.who_has(futures).values() for worker in holders}
        self.assertEqual(len(at_work), 2)
        rows = collect(self.client, futures)
        expected = self.sim("--system", ",".join(SYSTEMS), "--ram", ",".join(SIZES), "--backing", "sata-ssd")
        self.assertEqual(len(expected), 12)
        self.assertEqual(rows, expected)
        self.assertEqual(sweep.on(self.client), expected)
        self.assertEqual(list(sweep.here()), expected)

    def test_replacement_is_a_sweep_too(self):
        sweep = Sweep(self.traces, replacement=["lru", "min"], pages=["500", "1000"], pleat=PLEAT)
        self.assertEqual(sweep.on(self.client), self.sim("--replacement", "lru,min", "--pages", "500,1000"))

    def test_the_command_joins_a_cluster(self):
        out = os.path.join(self.directory.name, "rows.json")
        words = [*self.traces, "--system", "pleat,off", "--ram", "50%", "--pleat", PLEAT, "--json", out]
        self.assertEqual(main([*words, "--scheduler", self.cluster.scheduler_address]), 0)
        with open(out, encoding="utf-8") as file:
            self.assertEqual(json.load(file), self.sim("--system", "pleat,off", "--ram", "50%"))

    def refused(self, *words):
        error = io.StringIO()
        with contextlib.redirect_stderr(error):
            status = main([*words, "--pleat", PLEAT, "--scheduler", self.cluster.scheduler_address])
        self.assertEqual(status, 125)
        self.assertEqual(error.getvalue().count("\n"), 1, error.getvalue())
        return error.getvalue()

    def test_what_dask_leaves_behind_is_not_told(self):
        def leave_a_failure():
            with contextlib.closing(asyncio.new_event_loop()) as loop:
                loop.create_future().set_exception(TimeoutError("Timeout"))

        error = io.StringIO()
        words = [*self.traces, "--system", "off", "--ram", "50%", "--pleat", PLEAT, "--json", os.devnull]
        self.assertEqual(main([*words, "--scheduler", self.cluster.scheduler_address]), 0)
        with contextlib.redirect_stderr(error):
            leave_a_failure()
            gc.collect()
        self.assertEqual(error.getvalue(), "")

    def test_what_a_worker_refuses_is_one_line(self):
        sizes = ["--system", "pleat", "--ram", "50%"]
        self.assertIn("No such file", self.refused("/does/not/exist", *sizes))
        self.assertIn("there is no such", self.refused(self.traces[0], "--system", "lfu", "--ram", "50%"))
        self.assertIn("--system and --ram", self.refused(self.traces[0], "--system", "pleat"))
        self.assertIn("--replacement and --pages", self.refused(self.traces[0], *sizes, "--pages", "5"))
        with self.assertRaisesRegex(SimError, "--pleat"):
            play(["/no/pleat", "sim"])


if __name__ == "__main__":
    unittest.main()
